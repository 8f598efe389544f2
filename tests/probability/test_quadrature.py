import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.probability.quadrature import (
    column,
    constants,
    gauss_legendre,
    horner,
    transplanted_gauss_legendre,
)


def test_constants_are_copied_to_a_device_once() -> None:
    like = torch.zeros(3)
    first = constants((1.0, 2.0), like)
    assert first.dtype == torch.float64
    assert constants((1.0, 2.0), like) is first
    with torch.inference_mode():
        kept = constants((3.0,), like)
    # Made under inference mode they would be refused by autograd ever after.
    assert not kept.is_inference()


def test_constants_of_fake_tensors_are_not_kept() -> None:
    for _ in range(2):
        with FakeTensorMode():
            like = torch.empty(3, device="cuda")
            assert constants((1.0, 2.0), like).device.type == "cuda"


def test_column_broadcasts_in_front() -> None:
    assert column((1.0, 2.0), torch.zeros(4, 5)).shape == (2, 1, 1)


def test_rules_integrate_the_unit_interval() -> None:
    for rule, degree in (
        (gauss_legendre(10), 19),
        (transplanted_gauss_legendre(28), 8),
    ):
        nodes, weights = (torch.tensor(x, dtype=torch.float64) for x in rule)
        for power in range(degree + 1):
            error = (weights * nodes**power).sum() - 1.0 / (power + 1)
            assert error.abs() < 1e-14


def test_transplanted_rule_beats_gauss_legendre_on_a_bell() -> None:
    exact = 0.5 * (torch.pi / 30.0) ** 0.5 * torch.erf(torch.tensor(30.0) ** 0.5)
    errors = []
    for nodes, weights in (gauss_legendre(20), transplanted_gauss_legendre(20)):
        u = torch.tensor(nodes, dtype=torch.float64)
        value = torch.tensor(weights).double() @ torch.exp(-30.0 * (2.0 * u - 1.0) ** 2)
        errors.append((value - exact.double()).abs().item())
    assert errors[1] < 0.2 * errors[0]


def test_horner() -> None:
    x = torch.linspace(-2.0, 2.0, 5, dtype=torch.float64)
    coefficients = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    expected = 1.0 - 2.0 * x + 0.5 * x**2 + 3.0 * x**3
    torch.testing.assert_close(horner(coefficients, x), expected)
