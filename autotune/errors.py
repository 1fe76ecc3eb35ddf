"""Everything that autotune refuses to do, as exceptions whose text is one sentence: what came, what is accepted, what to do."""


class AutotuneError(Exception):
    """Base of every error that autotune raises on purpose. `exit_status` is what the command line ends with."""

    exit_status = 1


class UsageError(AutotuneError):
    """The work could not start: bad arguments, a missing compiler, an unreadable database, an unknown name."""

    exit_status = 2


class CompileError(AutotuneError):
    """A compiler rejected an instance; the message carries the first line of what it said."""


class KernelError(AutotuneError):
    """An instance could not be launched, or did not end as it should."""


class StorageError(AutotuneError):
    """The database could not be written for want of room; what was stored before is kept, and the same write may succeed later."""


def shortened(text: str, most: int) -> str:
    """`text` with no more than `most` of its characters, for what comes from a user or a file and is to be quoted in a sentence.

    >>> shortened("4096x4096", 60), shortened("1" * 1000, 4)
    ('4096x4096', '1111...')
    """
    return text if len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 80) -> str:
    """`value` of a user's as it would be written, shortened to `most` characters, whatever it is.

    >>> shown(float("nan")), shown("a"), shown(1 << 100_000)
    ('nan', "'a'", 'a value too long to be shown')
    """
    try:
        return shortened(repr(value), most)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a value too long to be shown"
    except Exception as error:
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def installing(extra: str) -> str:
    """How to install an extra of this package, as the end of a sentence: the same words wherever it is missing."""
    return f'pip install -e ".[{extra}]" in a checkout, pip install "pycuda-autotune[{extra}]" elsewhere'
