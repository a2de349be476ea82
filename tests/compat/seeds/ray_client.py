# From NeMo Curator's guide "Migration Guide: Dask to Ray", steps "Start a Distributed Computing Client" and "Stop the
# Client".
# New: Ray
from nemo_curator.core.client import RayClient

ray_client = RayClient()
ray_client.start()

# Stop Ray client
ray_client.stop()
