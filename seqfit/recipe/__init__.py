"""WHAT to learn: the schema of a recipe, loading it from YAML with overrides, the recipes that ship."""

from seqfit.recipe.schema import EvalRecipe, ModelRecipe, Recipe, SourceRecipe, TaskRecipe, TrainRecipe

__all__ = ["EvalRecipe", "ModelRecipe", "Recipe", "SourceRecipe", "TaskRecipe", "TrainRecipe"]
