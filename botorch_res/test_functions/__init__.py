"""Robust test problems with certified optima."""

from botorch_res.test_functions.base import RobustTestProblem, ToleranceProblem
from botorch_res.test_functions.constrained import (
    Cantilever,
    ConstrainedPolynomial,
    RobustIslands,
    SwingingObstacle,
    WeldedBeam,
    WorstCaseConstraints,
)
from botorch_res.test_functions.deep_drawing import DeepDrawing
from botorch_res.test_functions.mixed import MotorCatalogue, SnapHook, SwitchingModes
from botorch_res.test_functions.robot_pushing import RobotPushing
from botorch_res.test_functions.synthetic import (
    RobustBranin,
    RobustEggholder,
    RobustHartmann3,
    RobustPolynomial,
    SinusLinear,
)
from botorch_res.test_functions.tolerances import (
    GaussianValleys,
    GrowingSines,
    PlateauWithCliff,
    ShiftedSinusLinear,
    TolerancePolynomial,
    ToleranceRosenbrock,
    ToleranceSinusLinear,
)
from botorch_res.test_functions.within_model import WithinModel

__all__ = [
    "Cantilever",
    "ConstrainedPolynomial",
    "DeepDrawing",
    "GaussianValleys",
    "GrowingSines",
    "MotorCatalogue",
    "PlateauWithCliff",
    "RobotPushing",
    "RobustBranin",
    "RobustEggholder",
    "RobustHartmann3",
    "RobustIslands",
    "RobustPolynomial",
    "RobustTestProblem",
    "ShiftedSinusLinear",
    "SinusLinear",
    "SnapHook",
    "SwingingObstacle",
    "SwitchingModes",
    "TolerancePolynomial",
    "ToleranceProblem",
    "ToleranceRosenbrock",
    "ToleranceSinusLinear",
    "WeldedBeam",
    "WithinModel",
    "WorstCaseConstraints",
]
