"""Logging of the supervisor's own processes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from unknot.supervisor.logs import configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_where_nobody_looks_a_line_is_json_with_event_level_and_time() -> None:
    out = io.StringIO()
    configure_logs("info", stream=out)
    structlog.get_logger().warning("alert.failed", alert_id="alr_1")
    line = json.loads(out.getvalue())
    assert (line["event"], line["level"], line["alert_id"]) == ("alert.failed", "warning", "alr_1")
    assert line["timestamp"].endswith("Z")


def test_an_error_is_told_with_its_traceback() -> None:
    out = io.StringIO()
    configure_logs("info", stream=out)
    try:
        raise ValueError("lost")
    except ValueError:
        structlog.get_logger().error("pump.failed", exc_info=True)
    assert "ValueError: lost" in json.loads(out.getvalue())["exception"]


def test_lines_under_the_level_are_left_out() -> None:
    out = io.StringIO()
    configure_logs("warning", stream=out)
    structlog.get_logger().info("alert.queued")
    assert out.getvalue() == ""


def test_for_people_a_name_from_outside_cannot_act_on_the_terminal() -> None:
    out = io.StringIO()
    configure_logs("info", stream=out, json=False)
    structlog.get_logger().info("alert.queued", member="agent/a\x1b[2J", error="gone \x9b31m")
    assert "agent/a?[2J" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert "\x9b" not in out.getvalue()


def test_for_people_a_line_is_text() -> None:
    out = io.StringIO()
    configure_logs("info", stream=out, json=False)
    structlog.get_logger().info("alert.queued", alert_id="alr_1")
    assert "alert.queued" in out.getvalue()
    assert not out.getvalue().startswith("{")
