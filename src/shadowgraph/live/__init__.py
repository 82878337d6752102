"""Users on a running program: registered and taken off while it runs, beside those of other controllers."""

from shadowgraph.live.counter import Counter
from shadowgraph.live.handlers import Ops
from shadowgraph.live.histogram import Histogram, Totals
from shadowgraph.live.own_process import attach_self
from shadowgraph.live.recorder import Recorder
from shadowgraph.live.starting import attach, launch
from shadowgraph.live.target import Target
from shadowgraph.live.user import User

__all__ = ["Counter", "Histogram", "Ops", "Recorder", "Target", "Totals", "User", "attach", "attach_self", "launch"]
