"""Object stores that kstore writes to, through the package obstore: the only room that imports it.

store.py has requests and their errors, env.py the Env over them.
"""

from kstore.env.objects.env import ObjectEnv, UploadedFile
from kstore.env.objects.store import CONDITIONAL_SCHEMES, ObjectStore, ObjectTag, StoredObject

__all__ = ["CONDITIONAL_SCHEMES", "ObjectEnv", "ObjectStore", "ObjectTag", "StoredObject", "UploadedFile"]
