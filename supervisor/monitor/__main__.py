"""`python -m unknot.supervisor.monitor`."""

import sys

from unknot.supervisor.monitor.process import main

sys.exit(main())
