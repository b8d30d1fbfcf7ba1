"""`python -m syncline` is `syncline`."""

from syncline.cli import main

main()
