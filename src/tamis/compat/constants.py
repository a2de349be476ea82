"""``nemo_curator.core.constants`` for scripts: the defaults of :class:`tamis.core.client.RayClient`."""

from __future__ import annotations

import os
import tempfile
from typing import Final

from tamis.core.client import RayClient

DEFAULT_RAY_PORT: Final = RayClient.ray_port
DEFAULT_RAY_DASHBOARD_PORT: Final = RayClient.ray_dashboard_port
DEFAULT_RAY_DASHBOARD_HOST: Final = RayClient.ray_dashboard_host
DEFAULT_RAY_CLIENT_SERVER_PORT: Final = RayClient.ray_client_server_port
DEFAULT_RAY_METRICS_PORT: Final = RayClient.ray_metrics_port
DEFAULT_RAY_TEMP_DIR: Final = os.path.join(tempfile.gettempdir(), "ray")
