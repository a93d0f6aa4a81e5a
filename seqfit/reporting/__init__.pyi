<<<<<<< HEAD
from seqfit.reporting import charts as charts
from seqfit.reporting import html as html
=======
from seqfit.reporting.audit_page import show_audit as show_audit
from seqfit.reporting.audit_page import write_audit_page as write_audit_page
>>>>>>> 9332323
from seqfit.reporting.data_page import write_data_page as write_data_page
from seqfit.reporting.live import watch as watch
from seqfit.reporting.page import build_parts as build_parts
from seqfit.reporting.page import report as report
from seqfit.reporting.plan_page import write_plan_page as write_plan_page
from seqfit.reporting.subject import find_runs as find_runs
