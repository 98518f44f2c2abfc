"""Real servers, repositories and checks that the tests share."""
