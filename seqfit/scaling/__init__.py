"""How a recipe's steps scale over processes here, measured, and over GPUs elsewhere, predicted."""
