"""Domains with fixed columns and linear constraints."""

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning

from botorch_res import RobustDomain
from tests.problems import DOUBLE, Draws, line

BOUNDS = line(2).repeat(1, 4) * torch.tensor([1.0, 1.0, 1.0, 5.0], **DOUBLE)
PLAIN = RobustDomain(BOUNDS, [3])
LISTED = RobustDomain(BOUNDS, [3], {2: [0.0, 0.3, 0.9, 1.0]}, {3: [1.0, 4.0]})
# Shares that sum to at most one; x0 <= x1.
SHARES = ([0, 1, 2], [-1.0, -1.0, -1.0], -1.0)
ORDER = ([1, 0], [1.0, -1.0], 0.0)


class TestFixedFeatures:
    def test_free_columns(self):
        domain = PLAIN.restricted({1: 0.25, 3: 2})
        assert domain.x.listed.tolist() == [1]
        assert domain.x.rows.tolist() == [[0.25]]
        assert domain.theta.choices.tolist() == [[2.0]]
        z = domain.sample(8, seed=0)
        assert (z[:, 1] == 0.25).all()
        assert (z[:, 3] == 2.0).all()
        assert len(z[:, 0].unique()) == 8
        assert not domain.x.contains(torch.tensor([0.5, 0.3, 0.5], **DOUBLE))

    def test_listed_columns(self):
        rows = torch.tensor([[0.1, 0.0], [0.2, 0.5], [0.3, 0.5]], **DOUBLE)
        domain = RobustDomain(BOUNDS, [3], {(1, 2): rows})
        fixed = domain.restricted({2: 0.5, 0: 0.7})
        expected = [[0.7, 0.2, 0.5], [0.7, 0.3, 0.5]]
        assert fixed.x.choices.tolist() == expected
        assert fixed.restricted({1: 0.3}).x.choices.tolist() == expected[1:]
        for other in ({2: 0.4}, {1: 0.1, 2: 0.5}):
            with pytest.raises(
                InputDataError, match=r"one of the values that are list"
            ):
                domain.restricted(other)

    def test_nothing(self):
        assert PLAIN.restricted() is PLAIN
        assert PLAIN.restricted({}, []) is PLAIN

    @pytest.mark.parametrize(
        ("fixed", "message"),
        [
            ([0], r"`fixed_features` to be a Mapping, got list"),
            ({4: 0.5}, r"columns without a tolerance, here some of .* got \[4\]"),
            ({"x": 0.5}, r"got \['x'\]"),
            ({0: 1.5}, r"`fixed_features\[0\]` .* bounds 0.0 to 1.0, got 1.5"),
            ({0: float("nan")}, "got nan"),
            ({0: "a"}, "got 'a'"),
        ],
    )
    def test_bad_input(self, fixed, message):
        with pytest.raises(InputDataError, match=message):
            PLAIN.restricted(fixed)


def holds(z):
    return (z[..., :3].sum(-1) <= 1 + 1e-12) & (z[..., 0] <= z[..., 1] + 1e-12)


class TestConstraints:
    @pytest.mark.parametrize("base", [PLAIN, LISTED])
    def test_samples_satisfy_them_and_fill_the_space(self, base):
        domain = base.restricted(inequality_constraints=[SHARES, ORDER])
        z = domain.sample(2000, seed=0)
        assert holds(z).all()
        assert domain.x.contains(domain.x.of(z)).all()
        feasible = base.sample(2000, seed=1)
        feasible = feasible[holds(feasible)]
        # Each feasible point of the box has a sample near it.
        distance = torch.cdist(feasible[:, :3], z[:, :3]).amin(dim=-1)
        assert distance.max() < 0.2
        assert torch.equal(z, domain.sample(2000, seed=0))

    def test_contains(self):
        domain = PLAIN.restricted(inequality_constraints=[SHARES, ORDER])
        x = PLAIN.x.sample(500, seed=2)
        assert torch.equal(domain.x.contains(x), holds(x))
        assert 20 < holds(x).sum() < 200

    @pytest.mark.parametrize("base", [PLAIN, LISTED])
    def test_nearest(self, base):
        domain = base.restricted(inequality_constraints=[SHARES, ORDER])
        z = 2.0 * Draws(0).uniform(300, 4) - 0.5
        moved = domain.nearest_evaluation(z)
        assert holds(moved).all()
        assert domain.x.contains(domain.x.of(moved)).all()
        inside = domain.sample(50, seed=0)
        assert torch.equal(domain.nearest_evaluation(inside), inside)
        # Points move to the boundary, and no further.
        clamped = base.nearest_evaluation(z)
        on_it = domain.x.slack(domain.x.of(moved)).amin(-1).abs() < 1e-12
        assert (on_it | (moved == clamped).all(-1)).all()

    def test_rows_without_a_point_are_left_out(self):
        domain = LISTED.restricted(
            inequality_constraints=[SHARES, ([0], [1.0], 0.15), ORDER]
        )
        # x0 + x1 is at least 0.3.
        assert domain.x.rows.flatten().tolist() == [0.0, 0.3]
        finite = LISTED.restricted({0: 0.2, 1: 0.2}, [SHARES])
        expected = [[0.2, 0.2, 0.0], [0.2, 0.2, 0.3]]
        assert finite.x.choices.tolist() == expected
        assert torch.equal(finite.x.inward(finite.x.choices), finite.x.choices)
        assert torch.equal(finite.x.spread(finite.x.choices), finite.x.choices)
        only_listed = LISTED.restricted(
            inequality_constraints=[([2], torch.ones(1), 0.3)]
        )
        assert only_listed.x.rows.flatten().tolist() == [0.3, 0.9, 1.0]

    def test_a_row_with_a_single_point(self):
        """Where a share is one, the others are zero."""
        domain = LISTED.restricted({2: 1.0}, [SHARES])
        z = domain.sample(9, seed=0)
        expected = torch.tensor([0.0, 0.0, 1.0], **DOUBLE).expand(9, -1)
        torch.testing.assert_close(z[:, :3], expected, rtol=0.0, atol=1e-9)

    @pytest.mark.parametrize("width", [0.0, 1e-8])
    @pytest.mark.parametrize("base", [PLAIN, LISTED])
    def test_no_volume(self, base, width):
        """Equalities: the points of a line would all move to its center."""
        line_alone = [SHARES, ([0, 1, 2], [1.0] * 3, 1.0 - width)]
        with pytest.raises(InputDataError, match=r"leave some volume .* leave it out"):
            base.restricted(inequality_constraints=line_alone)

    def test_rows_without_volume_are_left_out(self):
        """x0 + x1 is at least 0.1; beside x2 = 0.9 nothing but the segment is left."""
        least = ([0, 1], [1.0, 1.0], 0.1)
        with pytest.warns(InputDataWarning, match=r"columns \[2\], .*: \[\[0.9\]\]"):
            domain = LISTED.restricted(inequality_constraints=[SHARES, least])
        # Beside x2 = 1 there is no point at all.
        assert domain.x.rows.tolist() == [[0.0], [0.3]]
        assert holds(domain.sample(50, seed=0) * torch.tensor([0, 1, 1, 1])).all()
        with pytest.raises(InputDataError, match=r"leave some volume .* 0.1\]\] b"):
            LISTED.restricted({2: 0.9}, [SHARES, least])

    @pytest.mark.parametrize("width", [1.0, 1e-2, 1e-4, 1e-6])
    def test_centers(self, width):
        """No other point has a larger product of the distances from all faces."""
        thin = [
            ([0, 1], [-1.0, -1.0], -1.0),
            ([0, 1], [1.0, 1.0], 1.0 - width),
        ]
        part = PLAIN.restricted(inequality_constraints=thin).x
        middle = part.nearest(torch.zeros(3, **DOUBLE))
        # From the corner at zero towards the center, as far as the second constraint,
        # so by symmetry both columns are the same.
        assert middle[0] == pytest.approx(middle[1].item(), abs=1e-9)
        normal = torch.cat(
            [part.normals, torch.eye(3, **DOUBLE), -torch.eye(3, **DOUBLE)]
        )
        limits = torch.cat(
            [part.limits, torch.zeros(3, **DOUBLE), -torch.ones(3, **DOUBLE)]
        )
        slacks = part._centers[0] @ normal.mT - limits
        assert slacks.min() > 0.0
        force = normal / slacks.unsqueeze(-1)
        torch.testing.assert_close(
            force.sum(0) / force.abs().amax(),
            torch.zeros(3, **DOUBLE),
            rtol=0.0,
            atol=1e-9,
        )

    @pytest.mark.parametrize("width", [0.1, 1e-2, 1e-4, 1e-6])
    def test_thin_strips_are_filled(self, width):
        """Not only near their center, and in the other columns as without them."""
        strip = [([0, 1], [1.0, 1.0], 0.7 - width), ([0, 1], [-1.0, -1.0], -0.7)]
        domain = PLAIN.restricted(inequality_constraints=strip)
        z = domain.sample(700, seed=0)
        assert domain.x.contains(domain.x.of(z)).all()
        assert torch.equal(z[:, 2:], PLAIN.sample(700, seed=0)[:, 2:])
        for coordinate in (z[:, 0] / 0.7, (0.7 - z[:, 0] - z[:, 1]) / width):
            share = torch.histc(coordinate, 7, 0.0, 1.0) / 700
            assert share.sum() > 0.99
            assert share.min() > 0.04
        # Without a constraint that cuts, nothing moves.
        whole = PLAIN.restricted(inequality_constraints=[([0, 1], [1.0, 1.0], -1e9)])
        x = PLAIN.x.sample(50, seed=0)
        torch.testing.assert_close(whole.x.spread(x), x, rtol=0.0, atol=1e-9)

    def test_one_after_another(self):
        domain = PLAIN.restricted(inequality_constraints=[SHARES])
        domain = domain.restricted({2: 0.4}).restricted(inequality_constraints=[ORDER])
        assert holds(domain.sample(100, seed=0)).all()
        assert len(domain.x.limits) == 2
        assert len(domain.x.relaxed.limits) == 0
        assert domain.settings().x.is_constrained

    def test_representation(self):
        domain = LISTED.restricted({1: 0.4}, [SHARES, ORDER])
        names = {"RobustDomain": RobustDomain, "tensor": torch.tensor, "torch": torch}
        again = eval(repr(domain), names)
        assert torch.equal(again.sample(9, seed=0), domain.sample(9, seed=0))
        single = domain.to(torch.float32)
        z = single.sample(100, seed=0)
        assert z.dtype == torch.float32
        assert single.x.contains(single.x.of(z)).all()

    def test_beside_a_tolerance(self):
        base = RobustDomain(BOUNDS, tolerances={3: 0.5})
        domain = base.restricted({2: 0.1}, [SHARES, ORDER])
        z = domain.sample(100, seed=0)
        assert holds(z).all()
        assert (z[:, 2] == 0.1).all()
        assert z[:, 3].max() > 5.2
        with pytest.raises(InputDataError, match=r"without a tolerance, .* got \[3\]"):
            base.restricted({3: 2.0})
        with pytest.raises(InputDataError, match=r"without a tolerance, .* got \[3\]"):
            base.restricted(None, [([3], [1.0], 2.0)])

    @pytest.mark.parametrize(
        ("constraints", "error", "message"),
        [
            (0.5, InputDataError, "to be a Sequence, got float"),
            ([0.5], InputDataError, r"\[0\]` to be \(indices, coefficients, rhs\), g"),
            ([SHARES, SHARES[:2]], InputDataError, r"constraints\[1\]` to be \(ind"),
            ([([0], ["a"], 0.0)], InputDataError, "of numbers, got"),
            ([([0], [1.0], None)], InputDataError, "of numbers, got"),
            (
                [([0, 1], [1.0], 0.0)],
                BotorchTensorDimensionError,
                "as many coefficients as indices",
            ),
            ([([], [], 0.0)], BotorchTensorDimensionError, "one or more"),
            ([(0, 1.0, 0.0)], BotorchTensorDimensionError, "as many coefficients"),
            ([([3], [1.0], 0.0)], InputDataError, r"controllable columns .* \[3\]"),
            ([([7], [1.0], 0.0)], InputDataError, r"some of \[0, 1, 2\], got \[7\]"),
            ([([1, 1], [1.0, 1.0], 0.0)], InputDataError, r"distinct .* \[1, 1\]"),
            ([([0], [float("nan")], 0.0)], InputDataError, "Expected finite numbers"),
            ([([0], [1.0], float("inf"))], InputDataError, "Expected finite numbers"),
            ([([0], [0.0], 0.0)], InputDataError, "not all zero"),
            ([([0], [1.0], 1.1)], InputDataError, "some point of the domain satisfies"),
            (
                [ORDER, ([0, 1], [1.0, -1.0], 0.1)],
                InputDataError,
                "some point of the domain satisfies",
            ),
        ],
    )
    @pytest.mark.parametrize("base", [PLAIN, LISTED])
    def test_bad_input(self, base, constraints, error, message):
        with pytest.raises(error, match=message):
            base.restricted(inequality_constraints=constraints)

    def test_columns_of_categories(self):
        bounds = torch.tensor([[0.0] * 3, [2.0] * 3], **DOUBLE)
        domain = RobustDomain(bounds, [2], {0: [0, 1, 2]}, cat_dims=[0])
        message = r"columns of numbers .* some of \[1\], got \[0, 1\]"
        with pytest.raises(InputDataError, match=message):
            domain.restricted(inequality_constraints=[([0, 1], [1.0, 1.0], 1.0)])
        # A category can be fixed.
        assert domain.restricted({0: 1.0}).x.rows.tolist() == [[1.0]]
