"""Quantities as Kubernetes writes them: 141Gi, 100, 1500m."""
import fractions
import math
import re

FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))")
BINARY = {f"{letter}i": 1 << 10 * (i + 1) for i, letter in enumerate("KMGTPE")}
DECIMAL = {letter: fractions.Fraction(1000) ** (i - 3) for i, letter in enumerate(["n", "u", "m", "", *"kMGTPE"])}


def parsed(text):
    """The value, and whether its suffix is a binary one."""
    match = FORM.fullmatch(str(text)) if isinstance(text, (str, int, float)) and not isinstance(text, bool) else None
    if not match:
        raise ValueError(f"{text!r} is no quantity, as 10Gi, 1500m and 100 are")
    number, binary, decimal, exponent = match.groups()
    scale = BINARY[binary] if binary else DECIMAL[decimal or ""] * fractions.Fraction(10) ** int(exponent or 0)
    return fractions.Fraction(number) * scale, bool(binary)


def value(text):
    return parsed(text)[0]


def text(amount, binary):
    """As the API server writes it: the largest suffix that leaves a whole number."""
    if binary and abs(amount) >= 1024:
        amount = math.ceil(amount)
        scales = {**BINARY, "": 1}
    else:
        amount = fractions.Fraction(math.ceil(amount * 10**9), 10**9)
        scales = DECIMAL
    suffix = max((s for s in scales if amount % scales[s] == 0), key=lambda s: scales[s]) if amount else ""
    return f"{int(amount / scales[suffix])}{suffix}" if amount else "0"


def canonical(written):
    """What the API server makes of it: 1024Mi is 1Gi, and 0.5 is 500m."""
    return text(*parsed(written))
