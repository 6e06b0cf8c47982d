"""`python -m planner.accuracy.table`: the accuracy table of the README. A door for its name; the
program is in maintain/.
"""

import sys

from planner.accuracy.maintain.table import main

if __name__ == "__main__":
    sys.exit(main())
