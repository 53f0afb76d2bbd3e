"""The module of Terraform has the parameters of the release's template, with their words."""

import json
import re

from infra.places import PROJECT_ROOT
from infra.release.folder import ASSETS, TEMPLATE
from infra.release.parameters import PARAMETERS, Parameter

MODULE = PROJECT_ROOT / "deploy" / "terraform"
VARIABLE = re.compile(r'variable "(\w+)" \{\n  description = (".*")\n')


def variable(parameter: Parameter) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", parameter.name).lower()


def test_module_has_a_variable_for_each_parameter() -> None:
    declared = {name: json.loads(says) for name, says in VARIABLE.findall((MODULE / "variables.tf").read_text())}
    assert declared == {variable(each): each.says for each in PARAMETERS}
    main = (MODULE / "main.tf").read_text()
    passed = dict(re.findall(r"^    (\w+) += var\.(\w+)$", main, re.MULTILINE))
    assert passed == {each.name: variable(each) for each in PARAMETERS}
    assert f"/{TEMPLATE}" in main
    assert f'/{ASSETS}", "*.zip"' in main
