"""TieredEnv: segments that lie elsewhere, shown as the files of partition directories.

It knows no layout and no rule of choice: kstore.tier gives it the views.
"""

from kstore.env.tiered.env import ShownDirectory, ShownFiles, TieredEnv, env_of
from kstore.env.tiered.views import SeesObjects, View

__all__ = ["SeesObjects", "ShownDirectory", "ShownFiles", "TieredEnv", "View", "env_of"]
