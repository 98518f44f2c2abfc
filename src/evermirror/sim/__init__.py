"""The what-if simulator behind `evermirror simulate`: the real schedulers and machines in virtual time."""
