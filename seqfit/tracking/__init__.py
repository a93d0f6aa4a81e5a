"""Runs in other people's dashboards, from run directories alone: TensorBoard, trackio, Weights & Biases, MLflow."""
