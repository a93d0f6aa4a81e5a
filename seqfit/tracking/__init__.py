"""Runs in other people's dashboards, from run directories alone: TensorBoard, trackio, Weights & Biases, MLflow."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.tracking.track")
