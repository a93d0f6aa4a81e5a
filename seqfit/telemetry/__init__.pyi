from seqfit.telemetry.host import read_peak_bytes as read_peak_bytes
from seqfit.telemetry.host import read_resident_bytes as read_resident_bytes
from seqfit.telemetry.sampler import SamplerProcess as SamplerProcess
from seqfit.telemetry.sampler import wait_for_closing as wait_for_closing
from seqfit.telemetry.summary import GpuSummary as GpuSummary
from seqfit.telemetry.summary import find_trained as find_trained
from seqfit.telemetry.summary import summarise_gpus as summarise_gpus
from seqfit.telemetry.summary import summarise_host as summarise_host
