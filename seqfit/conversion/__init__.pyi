from seqfit.conversion.reading import ScriptSettings as ScriptSettings
from seqfit.conversion.translation import Conversion as Conversion
from seqfit.conversion.translation import convert as convert
from seqfit.conversion.translation import format_conversion as format_conversion
from seqfit.conversion.translation import write_conversion as write_conversion
