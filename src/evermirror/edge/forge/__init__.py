"""What forges can do that git cannot, through their APIs."""
