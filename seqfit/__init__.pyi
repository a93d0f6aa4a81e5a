from seqfit.comparison.audit import audit as audit
from seqfit.comparison.compare import compare as compare
from seqfit.doctor import examine as examine
from seqfit.errors import SeqfitError as SeqfitError
from seqfit.evaluation.evaluate import evaluate as evaluate
from seqfit.evaluation.evaluate import predict as predict
from seqfit.evaluation.paired import evaluate_pair as evaluate_pair
from seqfit.export.export import export_run as export_run
from seqfit.inspection.data import describe_data as describe_data
from seqfit.inspection.guess import guess_recipe as guess_recipe
from seqfit.planning.plan import plan as plan
from seqfit.profiling.profile import profile as profile
from seqfit.recipe.library import copy_recipe as copy_recipe
from seqfit.recipe.library import list_library as list_library
from seqfit.recipe.load import load_recipe as load_recipe
from seqfit.recipe.load import to_json_schema as to_json_schema
from seqfit.recipe.schema import Recipe as Recipe
from seqfit.reporting.page import report as report
from seqfit.rundir.reader import Run as Run
from seqfit.scaling.report import scale as scale
from seqfit.tracking.track import track as track
from seqfit.training.train import train as train
from seqfit.trimming.trim import trim as trim

__version__: str
