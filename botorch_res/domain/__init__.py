"""The domain of a robust optimisation problem: which columns do we control?"""

from botorch_res.domain.part import DomainPart
from botorch_res.domain.robust_domain import RobustDomain

__all__ = ["DomainPart", "RobustDomain"]
