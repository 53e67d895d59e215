"""A stand-in for Modal's server on the loopback range, for Modal's own client to talk to.

It speaks the internal protocol of the client that the lock pins: as many of its calls as `modal
run`, ``.remote``, ``.starmap``, ``.spawn`` and ``with_options`` make. A "container" is a process
that sees the files which the client uploaded, and no others of the project, so that a forgotten
upload shows. There is no image and no GPU: packages are those of the tests, and torch has the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_grpc
from modal_proto import api_pb2 as pb

PICKLE = [pb.DATA_FORMAT_PICKLE]
RESULT = pb.GenericResult

# What a container runs: the function of the app's module, on arguments from a file.
CONTAINER = """
import importlib, pickle, sys
spec = pickle.load(open(sys.argv[1], "rb"))
try:
    module = importlib.import_module(spec["module"])
    exec(spec["before"], {"module": module})
    arguments, options = spec["arguments"]
    result = True, getattr(module, spec["function"]).local(*arguments, **options)
except Exception as error:
    result = False, error
with open(sys.argv[2], "wb") as file:
    pickle.dump(result, file)
"""


class Fake:
    """One method per call of the protocol: a request in, a response out, or a stream of them.

    ``before`` is code that each container runs before the function (``module`` is the app's);
    ``limit`` replaces the functions' time limits; ``refuse`` maps the name of a call to the error
    that it meets.
    """

    def __init__(self, forks, before: str = "", limit: float | None = None, refuse=None):
        self.forks, self.before, self.limit, self.refuse = forks, before, limit, refuse or {}
        self.numbers = defaultdict(itertools.count)
        self.requests = Counter()  # calls of the protocol, by name
        self.files, self.mounts, self.images = {}, {}, {}
        self.functions = {}  # id -> definition
        self.options = {}  # id of a function with options -> (id of the function, options)
        self.started = []  # names of functions that a container started for
        self.cancelled = []  # ids of calls
        self.outputs = defaultdict(dict)  # id of a call -> index -> output
        self.waiting = Counter()  # id of a call -> inputs without an output
        self.containers = defaultdict(list)  # id of a call -> processes
        self.ended_apps = set()
        self.closed = False
        self.slots = threading.Semaphore(2)  # containers at a time

    def new(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers[kind])}"

    # --- the client, its app, its files ---

    def ClientHello(self, request):
        return pb.ClientHelloResponse()

    def EnvironmentGetOrCreate(self, request):
        settings = pb.EnvironmentSettings(image_builder_version="2025.06")
        return pb.EnvironmentGetOrCreateResponse(
            environment_id="en-1", metadata=pb.EnvironmentMetadata(name="main", settings=settings)
        )

    def AppCreate(self, request):
        return pb.AppCreateResponse(app_id=self.new("ap"), app_page_url="http://127.0.0.1/app")

    def AppHeartbeat(self, request):
        return Empty()

    def AppPublish(self, request):
        return pb.AppPublishResponse()

    def AppClientDisconnect(self, request):
        self.ended_apps.add(request.app_id)
        return Empty()

    async def AppGetLogs(self, request):
        while request.app_id not in self.ended_apps:
            await asyncio.sleep(0.02)
        yield pb.TaskLogsBatch(app_done=True)

    def MountGetOrCreate(self, request):
        mount = self.new("mo")
        self.mounts[mount] = {f.filename: f.sha256_hex for f in request.files}
        checksum = pb.MountHandleMetadata(content_checksum_sha256_hex="0")
        return pb.MountGetOrCreateResponse(mount_id=mount, handle_metadata=checksum)

    def MountBatchedCheckExistence(self, request):
        missing = [h for h in request.sha256_hex_hashes if h not in self.files]
        return pb.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    def MountPutFile(self, request):
        if request.WhichOneof("data_oneof"):
            self.files[request.sha256_hex] = request.data
        return pb.MountPutFileResponse(exists=request.sha256_hex in self.files)

    def ImageGetOrCreate(self, request):
        image = self.new("im")
        self.images[image] = request.image
        return pb.ImageGetOrCreateResponse(
            image_id=image,
            result=RESULT(status=RESULT.GENERIC_STATUS_SUCCESS),
            metadata=pb.ImageMetadata(image_builder_version=request.builder_version),
        )

    # --- functions ---

    def FunctionPrecreate(self, request):
        return pb.FunctionPrecreateResponse(
            function_id=request.existing_function_id or self.new("fu"),
            handle_metadata=self.handle(request.function_name, request.app_id),
        )

    def FunctionCreate(self, request):
        function = pb.Function()
        function.CopyFrom(request.function)
        data = pb.FunctionData()
        data.CopyFrom(request.function_data)
        if not data.ranked_functions:  # the client reads the definition back from here
            data.ranked_functions.add(function=function)
        identity = request.existing_function_id or self.new("fu")
        self.functions[identity] = function
        return pb.FunctionCreateResponse(
            function_id=identity,
            function=function,
            function_data=data,
            handle_metadata=self.handle(function.function_name, request.app_id),
        )

    def FunctionBindParams(self, request):
        identity = self.new("fu")
        self.options[identity] = request.function_id, request.function_options
        self.functions[identity] = function = self.functions[request.function_id]
        return pb.FunctionBindParamsResponse(
            bound_function_id=identity, handle_metadata=self.handle(function.function_name, "")
        )

    def handle(self, name: str, app: str):
        return pb.FunctionHandleMetadata(
            function_name=name,
            function_type=pb.Function.FUNCTION_TYPE_FUNCTION,
            app_id=app,
            definition_id="de-1",
            supported_input_formats=PICKLE,
            supported_output_formats=PICKLE,
        )

    # --- calls ---

    def FunctionMap(self, request):
        call = self.new("fc")
        return pb.FunctionMapResponse(
            function_call_id=call,
            function_call_jwt=call,
            pipelined_inputs=self.put(call, request.function_id, request.pipelined_inputs),
            max_inputs_outstanding=1000,
        )

    def FunctionPutInputs(self, request):
        items = self.put(request.function_call_id, request.function_id, request.inputs)
        return pb.FunctionPutInputsResponse(inputs=items)

    def FunctionFinishInputs(self, request):
        return Empty()

    def FunctionCallCancel(self, request):
        self.cancelled.append(request.function_call_id)
        for process in self.containers[request.function_call_id] * request.terminate_containers:
            process.kill()
        return Empty()

    async def FunctionGetOutputs(self, request):
        call, patience = request.function_call_id, request.timeout
        while not (ready := self.outputs[call]) and patience > 0:
            await asyncio.sleep(0.02)
            patience -= 0.02
        given = [ready.pop(index) for index in sorted(ready)]
        return pb.FunctionGetOutputsResponse(
            outputs=given, num_unfinished_inputs=self.waiting[call]
        )

    def put(self, call: str, function: str, items) -> list:
        given = []
        for item in items:
            identity = self.new("in")
            self.waiting[call] += 1
            threading.Thread(
                target=self.work, args=(call, function, identity, item), daemon=True
            ).start()
            given.append(
                pb.FunctionPutInputsResponseItem(
                    idx=item.idx, input_id=identity, input_jwt=identity
                )
            )
        return given

    def work(self, call: str, function: str, identity: str, item) -> None:
        with self.slots:
            if self.closed or call in self.cancelled:
                return
            result = self.execute(call, self.functions[function], item.input)
        self.outputs[call][item.idx] = pb.FunctionGetOutputsItem(
            input_id=identity, idx=item.idx, result=result, data_format=pb.DATA_FORMAT_PICKLE
        )
        self.waiting[call] -= 1

    def execute(self, call: str, function, given) -> RESULT:
        """Run one input in a container that has the uploaded files."""
        self.started.append(function.function_name)
        with tempfile.TemporaryDirectory(prefix="container-") as folder:
            folder = Path(folder)
            for name, content in self.uploaded(function).items():
                path = folder / name.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            spec = {
                "module": function.module_name,
                "function": function.function_name,
                "arguments": pickle.loads(given.args),
                "before": self.before,
            }
            (folder / "spec").write_bytes(pickle.dumps(spec))
            process = self.forks.start(
                CONTAINER,
                ["container", folder / "spec", folder / "result"],
                env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
                cwd=folder,
                path=[folder / "root"],
                out=folder / "printed",
            )
            self.containers[call].append(process)
            status = process.wait(self.limit or function.timeout_secs)
            process.kill()
            if status is None:
                return RESULT(status=RESULT.GENERIC_STATUS_TIMEOUT, exception="timed out")
            if not (folder / "result").exists():
                words = f"ended with status {status}: {process.output[-300:]}"
                return RESULT(status=RESULT.GENERIC_STATUS_TERMINATED, exception=words)
            right, value = pickle.loads((folder / "result").read_bytes())
        data = pickle.dumps(value, protocol=4)
        if right:
            return RESULT(status=RESULT.GENERIC_STATUS_SUCCESS, data=data)
        return RESULT(status=RESULT.GENERIC_STATUS_FAILURE, exception=repr(value), data=data)

    def uploaded(self, function) -> dict[str, bytes]:
        """Path in the container -> content, of everything that the client mounted."""
        files = {}
        for mount in function.mount_ids:
            files |= {name: self.files[sha] for name, sha in self.mounts[mount].items()}
        return files


def _servicer(fake: Fake):
    def method(name):
        async def handle(self, stream):
            request = await stream.recv_message()
            fake.requests[name] += 1
            if name in fake.refuse:
                raise fake.refuse[name]
            implementation = getattr(fake, name, None)
            if implementation is None:
                raise GRPCError(Status.UNIMPLEMENTED, f"the stand-in has no {name}")
            answer = implementation(request)
            if hasattr(answer, "__aiter__"):
                async for message in answer:
                    await stream.send_message(message)
            else:
                answer = await answer if asyncio.iscoroutine(answer) else answer
                await stream.send_message(answer)

        return handle

    names = api_grpc.ModalClientBase.__abstractmethods__
    return type("Servicer", (api_grpc.ModalClientBase,), {n: method(n) for n in names})()


@contextlib.contextmanager
def serve(forks, **options):
    """A running server; its ``env`` is what a client needs to find it and nothing else."""
    fake, ready, there = Fake(forks, **options), threading.Event(), {}

    async def main():
        server = Server([_servicer(fake)])
        await server.start("127.0.0.1", 0)
        there.update(loop=asyncio.get_running_loop(), stop=asyncio.Event())
        there["port"] = server._server.sockets[0].getsockname()[1]
        ready.set()
        await there["stop"].wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    fake.env = {
        "MODAL_SERVER_URL": f"http://127.0.0.1:{there['port']}",
        "MODAL_TOKEN_ID": "ak-test",
        "MODAL_TOKEN_SECRET": "as-test",
        "NO_PROXY": "127.0.0.1",
    }
    try:
        yield fake
    finally:
        fake.closed = True
        for processes in fake.containers.values():
            for process in processes:
                process.kill()
        there["loop"].call_soon_threadsafe(there["stop"].set)
        thread.join(5)
