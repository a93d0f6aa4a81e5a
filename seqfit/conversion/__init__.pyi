from seqfit.conversion.convert import Conversion as Conversion
from seqfit.conversion.convert import convert as convert
from seqfit.conversion.convert import format_conversion as format_conversion
from seqfit.conversion.convert import write_conversion as write_conversion
from seqfit.conversion.reading import ScriptSettings as ScriptSettings
