"""`python -m gputrace`: the program itself."""

from ._program import main

main()
