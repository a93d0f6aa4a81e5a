from seqfit.conversion.converted import Conversion as Conversion
from seqfit.conversion.converted import format_conversion as format_conversion
from seqfit.conversion.converted import write_conversion as write_conversion
from seqfit.conversion.reading import ScriptSettings as ScriptSettings
from seqfit.conversion.reading import check_script_settings as check_script_settings
from seqfit.conversion.translation import convert as convert
