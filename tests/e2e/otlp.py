"""A receiver of OpenTelemetry out of its official packages: gRPC on the first port, HTTP on the second. Everything that it takes is
parsed by them and written as JSON lines to a file, with the names that stand in no list of the semantic conventions."""

import importlib
import json
import pathlib
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import opentelemetry.semconv
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

GRPC, HTTP, FILE = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
# Of the specification of metrics, which is no semantic convention.
OTHERS = {"otel.metric.overflow"}


def published():
    """Every name and value in the package, whose modules are made from the published lists."""
    root = pathlib.Path(list(opentelemetry.semconv.__path__)[0])
    names = set()
    for file in root.rglob("*.py"):
        parts = file.relative_to(root).with_suffix("").parts
        if parts[-1] == "__init__":
            continue
        module = importlib.import_module(".".join(("opentelemetry.semconv", *parts)))
        names |= {value for key, value in vars(module).items() if key.isupper() and isinstance(value, str)}
    return names


NAMES = published()
assert len(NAMES) > 1000 and "mcp.method.name" in NAMES and "gen_ai.client.operation.duration" in NAMES


def unknown(message):
    """Names of attributes and metrics that are neither agentsh's own nor published."""
    found = set()

    def look(value):
        if isinstance(value, dict):
            for attribute in value.get("attributes", []):
                found.add(attribute["key"])
            for metric in value.get("metrics", []):
                found.add(metric["name"])
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(message)
    return sorted(name for name in found if not name.startswith("agentsh.") and name not in NAMES | OTHERS)


def took(kind, by, request):
    # What the package does not know would be lost silently.
    size = request.ByteSize()
    request.DiscardUnknownFields()
    assert request.ByteSize() == size
    message = MessageToDict(request)
    line = json.dumps({"kind": kind, "by": by, "message": message, "unknown": unknown(message)})
    with FILE.open("a") as file:
        file.write(line + "\n")


class Traces(trace_grpc.TraceServiceServicer):
    def Export(self, request, context):
        took("traces", "grpc", request)
        return trace.ExportTraceServiceResponse()


class Logs(logs_grpc.LogsServiceServicer):
    def Export(self, request, context):
        took("logs", "grpc", request)
        return logs.ExportLogsServiceResponse()


class Metrics(metrics_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        took("metrics", "grpc", request)
        return metrics.ExportMetricsServiceResponse()


PATHS = {
    "/v1/traces": ("traces", trace.ExportTraceServiceRequest, trace.ExportTraceServiceResponse),
    "/v1/logs": ("logs", logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse),
    "/v1/metrics": ("metrics", metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        kind, request, response = PATHS[self.path]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        took(kind, "http", request.FromString(body))
        answer = response().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
trace_grpc.add_TraceServiceServicer_to_server(Traces(), server)
logs_grpc.add_LogsServiceServicer_to_server(Logs(), server)
metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
server.add_insecure_port(f"127.0.0.1:{GRPC}")
server.start()
ThreadingHTTPServer(("127.0.0.1", HTTP), Handler).serve_forever()
