"""Runs in other people's dashboards, from run directories alone: TensorBoard, trackio, Weights & Biases, MLflow."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
