import copy
import pickle

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res import RobustDomain
from tests.fake_device import on_fake_device

BOUNDS = torch.tensor([[-1.0, 10.0, 0.0], [1.0, 20.0, 0.5]], dtype=torch.double)
X_CHOICES = torch.tensor([[0.0, 11.0], [0.5, 12.0], [-1.0, 20.0]], dtype=torch.double)
THETA_CHOICES = torch.tensor([[0.0], [0.2], [0.5], [0.1]], dtype=torch.double)


@st.composite
def columns_and_points(draw):
    """A dimension, uncontrollable columns in any order, and points of any batch."""
    dim = draw(st.integers(2, 7))
    order = draw(st.permutations(range(dim)))
    uncontrollable = order[: draw(st.integers(1, dim - 1))]
    batch_shape = draw(st.lists(st.integers(0, 4), max_size=3))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    z = torch.rand(*batch_shape, dim, generator=generator, dtype=torch.double)
    return uncontrollable, z


def unit_domain(dim, uncontrollable, **kwargs):
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, dim)
    return RobustDomain(bounds, uncontrollable, **kwargs)


class TestSplitAndJoin:
    @given(columns_and_points())
    def test_join_inverts_split(self, case):
        uncontrollable, z = case
        domain = unit_domain(z.shape[-1], uncontrollable)
        x, theta = domain.split(z)
        assert x.shape == (*z.shape[:-1], domain.x.dim)
        assert theta.shape == (*z.shape[:-1], domain.theta.dim)
        assert torch.equal(domain.join(x, theta), z)

    @given(columns_and_points())
    def test_columns_are_where_they_are_said_to_be(self, case):
        uncontrollable, z = case
        domain = unit_domain(z.shape[-1], uncontrollable)
        x, theta = domain.split(z)
        controllable = sorted(set(range(z.shape[-1])) - set(uncontrollable))
        assert domain.x.columns == tuple(controllable)
        assert domain.theta.columns == tuple(uncontrollable)
        for j, column in enumerate(uncontrollable):
            assert torch.equal(theta[..., j], z[..., column])
        for j, column in enumerate(controllable):
            assert torch.equal(x[..., j], z[..., column])

    def test_bounds_follow_the_columns(self):
        domain = RobustDomain(BOUNDS, [2, 0])
        assert domain.theta.bounds.tolist() == [[0.0, -1.0], [0.5, 1.0]]
        assert domain.x.bounds.tolist() == [[10.0], [20.0]]
        assert (domain.dim, domain.x.dim, domain.theta.dim) == (3, 1, 2)

    def test_join_broadcasts(self):
        domain = RobustDomain(BOUNDS, [1])
        x = torch.rand(5, 1, 2, dtype=torch.double)
        theta = torch.rand(4, 1, dtype=torch.double)
        z = domain.join(x, theta)
        assert z.shape == (5, 4, 3)
        assert torch.equal(z[3, 2], torch.stack([x[3, 0, 0], theta[2, 0], x[3, 0, 1]]))
        assert torch.equal(domain.join(x[0, 0], theta)[1, [0, 2]], x[0, 0])

    def test_gradient_passes(self):
        domain = RobustDomain(BOUNDS, [1])
        x = torch.rand(4, 2, dtype=torch.double, requires_grad=True)
        theta = torch.rand(1, dtype=torch.double, requires_grad=True)
        weight = torch.tensor([2.0, 3.0, 5.0], dtype=torch.double)
        (domain.join(x, theta) @ weight).sum().backward()
        assert torch.equal(x.grad, weight[[0, 2]].expand(4, 2))
        assert theta.grad.tolist() == [12.0]
        z = torch.rand(4, 3, dtype=torch.double, requires_grad=True)
        domain.split(z)[1].sum().backward()
        assert z.grad[0].tolist() == [0.0, 1.0, 0.0]

    def test_wrong_widths(self):
        domain = RobustDomain(BOUNDS, [1])
        with pytest.raises(
            BotorchTensorDimensionError,
            match=r"`z` of shape batch_shape x 3, got shape \(4, 2\)",
        ):
            domain.split(torch.zeros(4, 2))
        with pytest.raises(BotorchTensorDimensionError, match=r"`x`.*got shape \(\)"):
            domain.join(torch.tensor(0.0), torch.zeros(1))
        with pytest.raises(BotorchTensorDimensionError, match=r"`theta`.*\(4, 2\)"):
            domain.join(torch.zeros(2), torch.zeros(4, 2))
        with pytest.raises(
            BotorchTensorDimensionError, match=r"that broadcast, got \(3,\) and \(4,\)"
        ):
            domain.join(torch.zeros(3, 2), torch.zeros(4, 1))

    @pytest.mark.parametrize(
        # A build without CUDA cannot record gradients on fake CUDA tensors.
        ("device", "requires_grad"),
        [("cuda", False), ("meta", True)],
    )
    def test_stays_on_the_device(self, device, requires_grad):
        domain = RobustDomain(BOUNDS, [1])
        with FakeTensorMode():
            domain = on_fake_device(domain, device)
            z = torch.empty(5, 3, device=device, requires_grad=requires_grad)
            joined = domain.join(*domain.split(z))
            assert joined.device.type == device
            if requires_grad:
                joined.sum().backward()
                assert z.grad.device.type == device
            with pytest.raises(RuntimeError, match="device"):
                domain.join(torch.empty(5, 2), torch.empty(5, 1))


class TestMixed:
    """Some columns of a part are listed, the others are free."""

    domain = RobustDomain(
        BOUNDS, [2], x_choices={1: [20.0, 10.0, 12.5]}, theta_choices={2: [0.5, 0.0]}
    )
    wide = RobustDomain(
        unit_domain(6, [0]).bounds,
        [5, 1],
        x_choices={4: torch.tensor([0.5, 0.25]).double(), (3, 0): [[0, 1], [1, 0.5]]},
        theta_choices={1: [0.0, 0.125, 1.0]},
        tolerances={2: 0.25},
    )

    def test_parts(self):
        x, theta = self.domain.x, self.domain.theta
        assert (x.is_finite, x.is_box, x.choices) == (False, False, None)
        assert (x.free.tolist(), x.listed.tolist()) == ([0], [1])
        assert x.rows.tolist() == [[20.0], [10.0], [12.5]]
        assert theta.is_finite
        assert theta.choices.tolist() == [[0.5], [0.0]]
        # Rows are products of what is listed; columns are in the order of the part.
        assert self.wide.x.columns == (0, 2, 3, 4)
        assert self.wide.x.listed.tolist() == [0, 2, 3]
        assert sorted(self.wide.x.rows.tolist()) == [
            [0.5, 1.0, 0.25],
            [0.5, 1.0, 0.5],
            [1.0, 0.0, 0.25],
            [1.0, 0.0, 0.5],
        ]
        assert self.wide.theta.columns == (2, 5, 1)
        assert self.wide.theta.free.tolist() == [0, 1]

    def test_contains(self):
        x = torch.tensor([[0.3, 20.0], [0.3, 15.0], [1.5, 20.0]]).double()
        assert self.domain.x.contains(x).tolist() == [True, False, False]

    def test_nearest(self):
        x = torch.tensor([[1.5, 19.0], [-0.5, 11.4]]).double()
        assert self.domain.x.nearest(x).tolist() == [[1.0, 20.0], [-0.5, 12.5]]

    @pytest.mark.parametrize("name", ["domain", "wide"])
    def test_sample(self, name):
        domain = getattr(self, name)
        for part in (domain.x, domain.theta):
            values = part.sample(240, seed=0)
            assert part.contains(values).all()
            rows, counts = part.listed_of(values).unique(dim=0, return_counts=True)
            assert len(rows) == len(part.rows)
            assert counts.amin() >= 0.8 * 240 / len(rows)
            # Every row meets the whole box of the free columns.
            low, high = part.free_bounds
            for row in rows:
                own = (part.listed_of(values) == row).all(dim=-1)
                spread = part.free_of(values[own]).aminmax(dim=0)
                assert (spread.max - spread.min >= 0.8 * (high - low)).all()

    def test_split_inverts_join(self):
        for domain in (self.domain, self.wide):
            x, theta = domain.x.sample(9, seed=0), domain.theta.sample(9, seed=1)
            z = domain.join(x, theta)
            again = domain.split(z)
            assert torch.allclose(domain.join(*again), z, rtol=0, atol=1e-15)
            plain = ~domain.x.of(domain.has_tolerance)
            assert torch.equal(again[0][:, plain], x[:, plain])

    def test_evaluations(self):
        evaluations = self.wide.evaluations
        assert evaluations.x.columns == self.wide.x.columns
        assert evaluations.theta.columns == (5, 1)
        assert evaluations.bounds[:, 2].tolist() == [-0.25, 1.25]
        rows = self.wide.x.rows.unique(dim=0)
        assert torch.equal(evaluations.x.rows, rows)
        z = self.wide.sample(300, seed=0)
        assert (z[:, 2] < 0).any()
        assert evaluations.x.contains(evaluations.x.of(z)).all()
        assert torch.equal(self.wide.nearest_evaluation(z), z)
        settings = self.wide.settings()
        assert settings.theta.choices.shape == (1, 2)
        assert settings.x is self.wide.x

    def test_to_and_repr(self):
        names = {"RobustDomain": RobustDomain, "tensor": torch.tensor, "torch": torch}
        again = eval(repr(self.wide), names)
        for other in (again, self.wide.to(torch.float32).to(torch.double)):
            for name in ("x", "theta"):
                own, part = getattr(self.wide, name), getattr(other, name)
                assert torch.equal(part.rows, own.rows)
                assert torch.equal(part.listed, own.listed)
                assert part.columns == own.columns
            assert torch.equal(other.evaluations.bounds, self.wide.evaluations.bounds)
        assert self.wide.to(torch.float32).evaluations.x.rows.dtype == torch.float32

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({}, "to be a tensor of the rows of all columns of x, or a dictionary"),
            ({2: [0.0]}, r"of the columns \[0, 1\], each at most once, got the keys"),
            ({0: [0.0], (0, 1): [[0.0, 10.0]]}, "each at most once"),
            ({(): [[]]}, "each at most once"),
            ({0: "steel"}, r"`x_choices\[0\]` to be a list of numbers, got 'steel'"),
            ({(0, 1): [[0.0], [0.0, 1.0]]}, r"to be a list of rows of numbers, got"),
            ({0: [0.5, 0.5]}, r"distinct rows in `x_choices\[0\]`, got \[0.5\] 2"),
            ({0: [3.0]}, r"within the bounds \[-1.0\] to \[1.0\], got \[3.0\] in"),
            ({0: [float("nan")]}, r"within the bounds .* got \[nan\] in row 0"),
            ({0: torch.tensor([0])}, r"`x_choices\[0\]` to hold floats"),
        ],
    )
    def test_bad_choices(self, choices, message):
        with pytest.raises(InputDataError, match=message):
            RobustDomain(BOUNDS, [2], x_choices=choices)

    @pytest.mark.parametrize("values", [[], [[0.0, 1.0]], 0.5])
    def test_bad_shape(self, values):
        with pytest.raises(BotorchTensorDimensionError, match=r"`x_choices\[0\]` of"):
            RobustDomain(BOUNDS, [2], x_choices={0: values})


class TestTolerances:
    """What we set is not what we get: ``z = x + theta`` in some columns."""

    domain = RobustDomain(BOUNDS, [1], tolerances={2: (-0.25, 0.125), 0: 0.125})

    def test_parts(self):
        assert self.domain.x.columns == (0, 2)
        assert self.domain.theta.columns == (2, 0, 1)
        assert torch.equal(self.domain.x.bounds, BOUNDS[:, [0, 2]])
        low, high = self.domain.theta.bounds.tolist()
        assert low == [-0.25, -0.125, BOUNDS[0, 1]]
        assert high == [0.125, 0.125, BOUNDS[1, 1]]

    def test_join_adds(self):
        x, theta = torch.tensor([1.0, 2.0]), torch.tensor([0.125, -0.125, 7.0])
        z = self.domain.join(x.to(BOUNDS), theta.to(BOUNDS))
        assert z.tolist() == [0.875, 7.0, 2.125]

    def test_split_takes_the_nearest_setting(self):
        lower, upper = self.domain.evaluations.bounds
        z = torch.stack([lower, upper, 0.5 * (lower + upper)])
        x, theta = self.domain.split(z)
        assert torch.equal(self.domain.join(x, theta), z)
        assert torch.equal(x[:2], self.domain.x.bounds)
        assert theta[:, :2].tolist() == [[-0.25, -0.125], [0.125, 0.125], [0.0, 0.0]]
        assert self.domain.x.contains(x).all()
        assert self.domain.theta.contains(theta).all()

    def test_split_without_a_deviation_of_zero(self):
        domain = RobustDomain(BOUNDS, tolerances={0: (0.125, 0.5)})
        z = BOUNDS.mean(dim=0)
        x, theta = domain.split(z)
        assert theta.tolist() == [0.125]
        assert torch.equal(domain.join(x, theta), z)

    def test_split_of_settings_from_a_list(self):
        rows = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.double)
        domain = RobustDomain(rows[[0, 2]], x_choices=rows, tolerances={0: 0.25})
        x, theta = domain.split(torch.tensor([[0.3], [0.2]]).double())
        assert x.tolist() == [[0.5], [0.0]]
        assert torch.allclose(theta, torch.tensor([[-0.2], [0.2]]).double())

    def test_evaluations(self):
        lower, upper = self.domain.evaluations.bounds
        assert torch.equal(lower, BOUNDS[0] - torch.tensor([0.125, 0.0, 0.25]))
        assert torch.equal(upper, BOUNDS[1] + torch.tensor([0.125, 0.0, 0.125]))
        z = self.domain.sample(200, seed=0)
        assert ((z >= lower) & (z <= upper)).all()
        assert (z < BOUNDS[0]).any()
        narrow = RobustDomain(
            BOUNDS, tolerances={0: 0.125}, evaluation_bounds=BOUNDS
        ).evaluations
        assert torch.equal(narrow.bounds, BOUNDS)
        assert narrow.evaluations is narrow
        plain = RobustDomain(BOUNDS, [1])
        assert plain.evaluations is plain

    def test_evaluations_of_lists(self):
        rows = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.double)
        shifts = torch.tensor([[-0.25], [0.25]], dtype=torch.double)
        options = {"bounds": rows[[0, 2]], "tolerances": {0: 0.25}}
        both = RobustDomain(**options, x_choices=rows, theta_choices=shifts)
        sums = both.evaluations.x.choices.flatten().tolist()
        assert sums == [-0.25, 0.25, 0.75, 1.25]
        assert both.all_pairs().shape == (3, 2, 1)
        # Deviations in a box: any value in the box of evaluations.
        assert not RobustDomain(**options, x_choices=rows).evaluations.x.is_finite
        inner = torch.tensor([[0.0], [1.0]], dtype=torch.double)
        few = RobustDomain(
            **options, x_choices=rows, theta_choices=shifts, evaluation_bounds=inner
        )
        assert few.evaluations.x.choices.flatten().tolist() == [0.25, 0.75]
        with pytest.raises(InputDataError, match=r"that contain a choice of x, got"):
            RobustDomain(
                **options,
                x_choices=rows,
                theta_choices=shifts,
                evaluation_bounds=inner * 0.1 + 0.4,
            )
        # A listed column with a free deviation is free, the others stay listed.
        mixed = RobustDomain(BOUNDS, [2], X_CHOICES, tolerances={0: 0.125}).evaluations
        assert mixed.x.free.tolist() == [0]
        assert mixed.x.rows.flatten().tolist() == [11.0, 12.0, 20.0]

    def test_settings_alone(self):
        settings = self.domain.settings()
        assert torch.equal(settings.bounds, BOUNDS)
        z = settings.sample(5, seed=0)
        assert torch.equal(z[:, 1], BOUNDS[0, 1].expand(5))
        assert self.domain.x.contains(settings.split(z)[0]).all()
        listed = RobustDomain(BOUNDS, [2], theta_choices=THETA_CHOICES).settings()
        assert torch.equal(listed.theta.choices, THETA_CHOICES[:1])

    def test_to_and_repr(self):
        domain = RobustDomain(
            BOUNDS, [1], tolerances={0: 0.125}, evaluation_bounds=BOUNDS
        )
        names = {"RobustDomain": RobustDomain, "tensor": torch.tensor, "torch": torch}
        again = eval(repr(domain), names)
        for other in (again, domain.to(torch.float32)):
            assert other.tolerances == domain.tolerances
            assert torch.equal(other.evaluations.bounds.double(), BOUNDS.double())
        assert domain.to(torch.float32).theta.bounds.dtype == torch.float32
        # A deviation at its limit stays within it, after rounding too.
        shifts = torch.tensor([[-0.1], [0.1]], dtype=torch.double)
        listed = RobustDomain(BOUNDS, theta_choices=shifts, tolerances={0: 0.1})
        back = listed.to(torch.float32).to(torch.double)
        assert torch.allclose(back.theta.choices, shifts)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tolerances": {0: -0.1}}, r"`tolerances\[0\]` to be a positive radius"),
            ({"tolerances": {0: (0.1, -0.1)}}, "a lower and then an upper deviation"),
            ({"tolerances": {0: "5%"}}, r"to be a radius, or .* got '5%'"),
            ({"tolerances": {0: (0.1, 0.2, 0.3)}}, "to be a radius, or a lower and"),
            ({"tolerances": {0: float("nan")}}, "to be a radius, or .* got nan"),
            ({"tolerances": {0: 1e3}}, "not to be wider than the bounds of its column"),
            ({"tolerances": {7: 0.1}}, "of columns from 0 to 2, got 7"),
            ({"tolerances": {0.0: 0.1}}, r"of columns from 0 to 2, got 0\.0"),
            ({"tolerances": {True: 0.1}}, "of columns from 0 to 2, got True"),
            ({"tolerances": [0.1]}, "`tolerances` to be a Mapping, got list"),
            (
                {"uncontrollable": [0], "tolerances": {0: 0.1}},
                r"of controllable columns only, got one of the .* \[0\]",
            ),
            (
                {"tolerances": {0: 0.1}, "evaluation_bounds": 2.0 * BOUNDS - 1e3},
                "`evaluation_bounds` within the bounds, widened by the tolerances",
            ),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(InputDataError, match=message):
            RobustDomain(BOUNDS, **options)

    def test_shape_of_the_box_of_evaluations(self):
        with pytest.raises(
            BotorchTensorDimensionError, match=r"of shape \(2, 3\), got shape \(2, 2\)"
        ):
            RobustDomain(BOUNDS, [1], evaluation_bounds=BOUNDS[:, :2])

    def test_nearest_evaluation(self):
        shifts = torch.tensor([[-0.1], [0.1]], dtype=torch.double)
        x = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.double)
        domain = RobustDomain(
            x[[0, 2]],
            x_choices=x,
            theta_choices=shifts,
            tolerances={0: 0.1},
            evaluation_bounds=torch.tensor([[0.05], [0.95]], dtype=torch.double),
        )
        z = torch.tensor([[-0.1], [0.52], [1.1]], dtype=torch.double)
        expected = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.double)
        torch.testing.assert_close(domain.nearest_evaluation(z), expected)
        grades = RobustDomain(
            BOUNDS,
            [2],
            theta_choices=THETA_CHOICES,
            evaluation_bounds=torch.stack([BOUNDS[0], BOUNDS[1] - 0.2]),
        )
        z = torch.tensor([0.9, 20.0, 0.5], dtype=torch.double)
        expected = torch.tensor([0.8, 19.8, 0.2], dtype=torch.double)
        torch.testing.assert_close(grades.nearest_evaluation(z), expected)
        tools = RobustDomain(
            BOUNDS,
            [2],
            X_CHOICES,
            evaluation_bounds=torch.stack([BOUNDS[0], BOUNDS[1] - 0.2]),
        )
        expected = torch.tensor([0.5, 12.0, 0.3], dtype=torch.double)
        torch.testing.assert_close(tools.nearest_evaluation(z), expected)

    def test_tolerances_are_a_copy(self):
        self.domain.tolerances[0] = (-9.0, 9.0)
        assert self.domain.tolerances[0] == (-0.125, 0.125)

    def test_parts_cannot_be_changed(self):
        with pytest.raises(AttributeError, match="A DomainPart cannot be changed"):
            self.domain.x.bounds = BOUNDS


class TestKinds:
    def test_four_kinds(self):
        for x_choices in (None, X_CHOICES):
            for theta_choices in (None, THETA_CHOICES):
                domain = RobustDomain(BOUNDS, [2], x_choices, theta_choices)
                assert domain.x.is_finite == (x_choices is not None)
                assert domain.theta.is_finite == (theta_choices is not None)

    def test_all_pairs(self):
        pairs = RobustDomain(BOUNDS, [2], X_CHOICES, THETA_CHOICES).all_pairs()
        assert pairs.shape == (3, 4, 3)
        for i, x in enumerate(X_CHOICES.tolist()):
            for j, theta in enumerate(THETA_CHOICES.tolist()):
                assert pairs[i, j].tolist() == x + theta

    def test_all_pairs_needs_two_finite_sets(self):
        with pytest.raises(UnsupportedError, match=r"has no theta_choices\.$"):
            RobustDomain(BOUNDS, [2], X_CHOICES).all_pairs()
        with pytest.raises(UnsupportedError, match=r"no x_choices and no theta_"):
            RobustDomain(BOUNDS, [2]).all_pairs()


class TestContains:
    def test_box(self):
        domain = RobustDomain(BOUNDS, [2])
        x = torch.tensor([[-1.0, 20.0], [0.0, 9.9], [1.0 + 1e-9, 10.0], [1.1, 12.0]])
        assert domain.x.contains(x.double()).tolist() == [True, False, True, False]
        theta = torch.tensor([[[0.0]], [[0.51]]])
        assert domain.theta.contains(theta).tolist() == [[True], [False]]

    def test_finite_sets(self):
        domain = RobustDomain(BOUNDS, [2], X_CHOICES, THETA_CHOICES)
        # The second has each of its columns in the set, but not together.
        x = torch.tensor([[0.5, 12.0], [0.5, 11.0], [0.5 + 1e-7, 12.0]]).double()
        assert domain.x.contains(x).tolist() == [True, False, True]
        assert domain.theta.contains(THETA_CHOICES).all()
        assert not domain.theta.contains(THETA_CHOICES + 0.01).any()

    def test_wrong_widths(self):
        domain = RobustDomain(BOUNDS, [2])
        with pytest.raises(BotorchTensorDimensionError, match=r"`x` .*\(3,\)"):
            domain.x.contains(torch.zeros(3))
        with pytest.raises(BotorchTensorDimensionError, match=r"`theta` .*\(3,\)"):
            domain.theta.contains(torch.zeros(3))


class TestSampling:
    def test_boxes_are_filled(self):
        domain = RobustDomain(BOUNDS, [1])
        z = domain.sample(256, seed=1)
        assert z.shape == (256, 3)
        unit = (z - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
        assert ((unit >= 0) & (unit < 1)).all()
        # A Sobol sequence puts exactly 16 of 256 points in each of 4 x 4 boxes.
        cells = (unit * 4).long()
        for i, j in ((0, 1), (0, 2), (1, 2)):
            counts = torch.bincount(cells[:, i] * 4 + cells[:, j], minlength=16)
            assert counts.tolist() == [16] * 16
        x, theta = domain.x.sample(8, seed=1), domain.theta.sample(8, seed=1)
        assert x.shape == (8, 2)
        assert theta.shape == (8, 1)
        assert (theta >= 10).all()
        assert (theta <= 20).all()

    @pytest.mark.parametrize("dtype", [torch.float, torch.double])
    def test_finite_sets_are_drawn_evenly(self, dtype):
        domain = RobustDomain(BOUNDS, [2], X_CHOICES, THETA_CHOICES).to(dtype)
        x, theta = domain.split(domain.sample(96, seed=3))
        assert domain.x.choices.dtype == x.dtype == dtype
        for part, choices in ((x, domain.x.choices), (theta, domain.theta.choices)):
            hits = (part.unsqueeze(-2) == choices).all(-1)
            assert hits.sum(-1).tolist() == [1] * 96
            expected = 96 / len(choices)
            assert (hits.sum(0) - expected).abs().max() <= 2
        assert domain.x.sample(5, seed=0).shape == (5, 2)
        assert domain.theta.sample(5, seed=0).shape == (5, 1)

    def test_finite_theta_and_box_are_filled_jointly(self):
        domain = RobustDomain(BOUNDS, [2], theta_choices=THETA_CHOICES)
        x, theta = domain.split(domain.sample(64, seed=5))
        # 16 points for each theta, and each theta's x in both halves of the box.
        for choice in THETA_CHOICES:
            of_choice = x[(theta == choice).all(-1)]
            assert len(of_choice) == 16
            assert (of_choice[:, 0] < 0).sum() == 8

    def test_seed(self):
        domain = RobustDomain(BOUNDS, [2], theta_choices=THETA_CHOICES)
        state = torch.random.get_rng_state()
        first, second = domain.sample(16, seed=7), domain.sample(16, seed=7)
        assert torch.equal(first, second)
        assert not torch.equal(first, domain.sample(16, seed=8))
        assert torch.equal(state, torch.random.get_rng_state())

    def test_number_of_points(self):
        with pytest.raises(
            InputDataError, match=r"`n` to be a whole .* least 1, got 0"
        ):
            RobustDomain(BOUNDS, [2]).sample(0)


class TestTravel:
    def test_copies(self):
        bounds, choices = BOUNDS.clone(), THETA_CHOICES.clone()
        domain = RobustDomain(bounds, [2], theta_choices=choices)
        bounds.zero_()
        choices.zero_()
        assert torch.equal(domain.bounds, BOUNDS)
        assert torch.equal(domain.theta.choices, THETA_CHOICES)
        with pytest.raises(AttributeError):
            domain.bounds = bounds

    def test_pickle_and_deepcopy(self):
        domain = RobustDomain(BOUNDS, [2], X_CHOICES, THETA_CHOICES)
        for twin in (pickle.loads(pickle.dumps(domain)), copy.deepcopy(domain)):
            assert torch.equal(twin.all_pairs(), domain.all_pairs())

    def test_to(self):
        domain = RobustDomain(BOUNDS, [2], X_CHOICES, THETA_CHOICES)
        single = domain.to(torch.float)
        assert single.all_pairs().dtype == torch.float
        assert single.to(device="cpu").bounds.dtype == torch.float
        assert domain.bounds.dtype == torch.double
        assert RobustDomain(BOUNDS, [2]).to(torch.float).x.choices is None


class TestBadInput:
    @pytest.mark.parametrize(
        ("bounds", "error", "message"),
        [
            (
                [[0, 0], [1, 1]],
                InputDataError,
                "`bounds` to be a Tensor, got list",
            ),
            (
                torch.tensor([[0, 0], [1, 1]]),
                InputDataError,
                r"`bounds` to hold floats, .*got torch\.int64",
            ),
            (
                torch.zeros(3, 2),
                BotorchTensorDimensionError,
                r"`bounds` of shape 2 x d .*got shape \(3, 2\)",
            ),
            (torch.zeros(2), BotorchTensorDimensionError, r"got shape \(2,\)"),
            (torch.zeros(2, 0), BotorchTensorDimensionError, r"got shape \(2, 0\)"),
            (
                torch.tensor([[0.0, 3.0], [1.0, 3.0]]),
                InputDataError,
                r"less than upper ones, got 3\.0 and 3\.0 at index \(1,\)",
            ),
            (
                torch.tensor([[2.0, 3.0], [1.0, 4.0]]),
                InputDataError,
                r"got 2\.0 and 1\.0 at index \(0,\)",
            ),
            (
                torch.tensor([[0.0, float("nan")], [1.0, 4.0]]),
                InputDataError,
                r"`bounds` to be finite, got nan at index \(0, 1\)",
            ),
            (
                torch.tensor([[0.0, 0.0], [float("inf"), 4.0]]),
                InputDataError,
                r"`bounds` to be finite, got inf at index \(1, 0\)",
            ),
        ],
    )
    def test_bounds(self, bounds, error, message):
        with pytest.raises(error, match=message):
            RobustDomain(bounds, [1])

    @pytest.mark.parametrize(
        ("uncontrollable", "error", "message"),
        [
            ([3], InputDataError, r"from 0 to 2, .* at most 2 of them, got \[3\]"),
            ([-1], InputDataError, r"of them, got \[-1\]"),
            ([1, 1], InputDataError, r"distinct .* got \[1, 1\]"),
            ([], InputDataError, r"at least one .* got \[\]"),
            ([2, 0, 1], InputDataError, r"at most 2 of them, got \[2, 0, 1\]"),
            (1, InputDataError, r"`uncontrollable` to list .*got 1\.$"),
            ([0.5], InputDataError, r"`uncontrollable` to list .*got \[0\.5\]"),
        ],
    )
    def test_uncontrollable(self, uncontrollable, error, message):
        with pytest.raises(error, match=message):
            RobustDomain(BOUNDS, uncontrollable)

    @pytest.mark.parametrize("part", ["x", "theta"])
    @pytest.mark.parametrize(
        ("choices", "error", "message"),
        [
            ([[0.0]], InputDataError, "`{}_choices` to be a tensor of the rows of all"),
            (torch.tensor([[0]]), InputDataError, r"`{}_choices` to hold floats"),
            (
                torch.tensor([[0.0]], dtype=torch.float),
                InputDataError,
                r"`{}_choices` of the dtype .*float64 on cpu, got torch\.float32",
            ),
            (
                torch.zeros(4, 2, dtype=torch.double),
                BotorchTensorDimensionError,
                r"`{}_choices` of shape n x 1 .*got shape \(4, 2\)",
            ),
            (
                torch.zeros(4, dtype=torch.double),
                BotorchTensorDimensionError,
                r"`{}_choices` of shape n x 1 .*got shape \(4,\)",
            ),
            (
                torch.zeros(0, 1, dtype=torch.double),
                BotorchTensorDimensionError,
                r"`{}_choices` .*n of at least 1, got shape \(0, 1\)",
            ),
            (
                torch.tensor([[0.5], [1.5]], dtype=torch.double),
                InputDataError,
                r"`{}_choices` within the bounds \[0\.0\] to \[1\.0\], got \[1\.5\] in "
                "row 1",
            ),
            (
                torch.tensor([[float("nan")]], dtype=torch.double),
                InputDataError,
                r"`{}_choices` within the bounds .*got \[nan\] in row 0",
            ),
            (
                torch.tensor([[0.5], [0.1], [0.5]], dtype=torch.double),
                InputDataError,
                r"distinct rows in `{}_choices`, got \[0\.5\] 2 times",
            ),
        ],
    )
    def test_choices(self, part, choices, error, message):
        with pytest.raises(error, match=message.format(part)):
            unit_domain(2, [0], **{f"{part}_choices": choices})


class TestCategories:
    domain = RobustDomain(
        BOUNDS, [2], {1: [10.0, 12.0]}, {2: [0.0, 0.5]}, cat_dims=[2, 1]
    )

    def test_kept(self):
        assert self.domain.cat_dims == (2, 1)
        assert self.domain.to(torch.float32).cat_dims == (2, 1)
        assert self.domain.settings().cat_dims == (2, 1)
        names = {"RobustDomain": RobustDomain, "tensor": torch.tensor, "torch": torch}
        assert eval(repr(self.domain), names).cat_dims == (2, 1)
        sloppy = RobustDomain(
            BOUNDS, [2], {1: [10.0, 12.0]}, tolerances={0: 0.1}, cat_dims=[1]
        )
        assert sloppy.evaluations.cat_dims == (1,)

    @pytest.mark.parametrize("cat_dims", [[0], [1, 1], [3], ["steel"]])
    def test_bad_input(self, cat_dims):
        with pytest.raises(InputDataError, match=r"`cat_dims` .* some of \[1\], got"):
            RobustDomain(BOUNDS, [2], {1: [10.0, 12.0]}, cat_dims=cat_dims)
