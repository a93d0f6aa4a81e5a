"""Makes `benchmarks` importable: it isn't part of the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
