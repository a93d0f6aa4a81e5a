from seqfit.tracking.follower import TrackerProcess as TrackerProcess
from seqfit.tracking.tracker import check_tool as check_tool
