"""docs/field-reports.md names tests; each of them exists."""
import re

from conftest import ROOT


def test_named_tests_exist():
    cpp = set()
    for source in (ROOT / "tests").rglob("*.cc"):
        cpp |= {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", source.read_text(), re.M)}
    suites = {name.split(".")[0] for name in cpp}
    file, named = None, 0
    for quoted in re.findall(r"\| *(?:[^|]*)\|([^|]*)\|\n", (ROOT / "docs" / "field-reports.md").read_text()):
        for token in re.findall(r"`([^`]+)`", quoted):
            if "::" in token:
                path, _, name = token.partition("::")
                file = path or file
                assert f"def {name}(" in (ROOT / "tests" / file).read_text(), token
            elif re.fullmatch(r"[A-Z]\w+\.\*", token):
                assert token[:-2] in suites, token
            elif re.fullmatch(r"[A-Z]\w+\.\w+", token):
                assert token in cpp, token
            else:
                continue
            named += 1
    assert named > 50
