"""`python -m planner.accuracy.bars`: the bars that the cost model is held to. A door for its name;
the program is in maintain/.
"""

import sys

from planner.accuracy.maintain.bars import main

if __name__ == "__main__":
    sys.exit(main())
