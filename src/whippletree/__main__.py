"""`python -m whippletree` is the `whippletree` command."""

import sys

from whippletree.cli.main import main

sys.exit(main())
