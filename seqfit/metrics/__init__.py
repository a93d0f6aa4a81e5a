"""References and predictions become scores, each knowing whether higher is better."""

from seqfit.metrics.registry import format_score, higher_is_better, known_metrics, score, scores_of
from seqfit.metrics.scores import Scores

__all__ = ["Scores", "format_score", "higher_is_better", "known_metrics", "score", "scores_of"]
