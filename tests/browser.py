"""Where Chromium and its driver are, for the tests that need a browser."""

import shutil

PACKAGES = "chromium chromium-driver"  # in Debian; Ubuntu's are stubs that install a snap

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")


def missing() -> str:
    """What is missing and how to get it; "" when a browser can be driven."""
    absent = [name for name, path in (("Chromium", CHROMIUM), ("chromedriver", CHROMEDRIVER)) if path is None]
    return f"{' and '.join(absent)} cannot be found; on Debian: apt-get install {PACKAGES}" if absent else ""
