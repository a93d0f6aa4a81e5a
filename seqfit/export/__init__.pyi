from seqfit.export.check import CheckResult as CheckResult
from seqfit.export.export import ExportReport as ExportReport
from seqfit.export.export import export_run as export_run
from seqfit.export.formats import EXPORT_FORMATS as EXPORT_FORMATS
from seqfit.export.push import check_name as check_name
from seqfit.export.push import plan_push as plan_push
from seqfit.export.push import upload as upload
