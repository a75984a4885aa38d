"""Swordfish as a plug-in of the peers' harness (../shared/peerbench): packed and run through the C ABI by ctypes.

usage, on the GPU machine: PLUGINS=$PWD/bench/peerbench_plugin.py bash PEERS/run.sh --shapes l8_qkv --ms 1,16 ...
SWORDFISH_LIBRARY names the shared library; by default build/release/lib/libswordfish.so beside this checkout.
"""
import ctypes
import os

import torch
from common import G, Peer, cur

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
P, I, Z, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int64
BF16, F16, E4M3, U8 = 0, 1, 3, 5
INT4, INT8, FP4 = 0, 1, 2
CUDA = 1


class Struct(ctypes.Structure):
    """A versioned struct of swordfish.h: struct_size comes first and is set."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class Tensor(Struct):
    _fields_ = [("struct_size", Z), ("name", ctypes.c_char_p), ("code", I), ("n", L), ("k", L), ("codes", P), ("codes_stride", L),
                ("group_size", L), ("rows", L), ("row_of_k", P), ("scales", P), ("scale_type", I), ("scale_stride_n", L),
                ("scale_stride_row", L), ("zeros", P), ("zero_type", I), ("zero_stride_n", L), ("zero_stride_row", L), ("offsets", P),
                ("offset_type", I), ("offset_stride_n", L), ("offset_stride_row", L), ("global_", ctypes.c_float), ("global_divides", I)]


class Problem(Struct):
    _fields_ = [("struct_size", Z), ("m", L), ("x_type", I), ("y_type", I), ("has_bias", I), ("device", I), ("device_index", I),
                ("threads", I), ("kernel", ctypes.c_char_p)]


class Plan(Struct):
    _fields_ = [("struct_size", Z), ("kernel", ctypes.c_char_p), ("kernel_index", I), ("tile_m", I), ("tile_n", I), ("tasks", I),
                ("split_k", I), ("workspace", Z), ("m", L), ("x_type", I), ("y_type", I), ("has_bias", I), ("device", I),
                ("device_index", I), ("threads", I)]


class RunArgs(Struct):
    _fields_ = [("struct_size", Z), ("x", P), ("ldx", L), ("y", P), ("ldy", L), ("bias", P), ("workspace", P), ("workspace_size", Z),
                ("stream", P), ("no_dependent", I)]


def load():
    lib = ctypes.CDLL(os.environ.get("SWORDFISH_LIBRARY", os.path.join(ROOT, "build", "release", "lib", "libswordfish.so")))
    lib.sf_last_error.restype = ctypes.c_char_p
    lib.sf_weight_free.argtypes = [P]
    lib.sf_weight_pack_tensors.argtypes = [P, Z, I, P]
    lib.sf_weight_gpu_bytes.argtypes = [P, P]
    lib.sf_weight_upload.argtypes = [P, I, P, Z, P, P]
    lib.sf_weight_borrow.argtypes = [P, I, P, Z, P]
    lib.sf_plan_make.argtypes = [P, P, P]
    lib.sf_context_create.argtypes = [I, P]
    lib.sf_workspace_init.argtypes = [P, P, Z, P]
    lib.sf_run.argtypes = [P, P, P, P]
    return lib


LIB = load()


def must(status):
    if status != 0:
        raise RuntimeError(LIB.sf_last_error().decode())


CONTEXT = P()
must(LIB.sf_context_create(0, ctypes.byref(CONTEXT)))


class Swordfish(Peer):
    """One weight format, with or without programmatic dependent launch. A weight copy is one tensor of bytes."""

    def __init__(self, name, ref, code, dtype=torch.bfloat16, dependent=True):
        self.name, self.ref, self.code, self.xdtype, self.dependent = name, ref, code, dtype, dependent
        self.like, self.weights, self.calls = {}, {}, {}

    def prepare(self, d):
        K, N = d.K, d.N
        parts = d.get(self.ref)
        codes = parts[0].t().contiguous().cpu()
        scales = parts[1].contiguous()
        group = 16 if self.ref == "nvfp4" else G
        t = Tensor(name=b"weight", code=self.code, n=N, k=K, codes=codes.data_ptr(), codes_stride=K, group_size=group, rows=K // group,
                   scale_stride_n=1, scale_stride_row=N)
        scales = (scales.view(torch.uint8) if self.ref == "nvfp4" else scales).cpu()
        t.scales = scales.data_ptr()
        t.scale_type = E4M3 if self.ref == "nvfp4" else F16 if scales.dtype == torch.float16 else BF16
        if self.ref == "nvfp4":
            t.global_ = parts[2]
        if self.ref == "u4zp":
            zeros = parts[2].contiguous().cpu()
            t.zeros, t.zero_type, t.zero_stride_n, t.zero_stride_row = zeros.data_ptr(), U8, 1, N
        if self.ref == "u4b8_perm":
            rows = d.get("perm")[0].to(torch.int32).contiguous().cpu()
            t.row_of_k = rows.data_ptr()
        host, size, gpu = P(), Z(), P()
        must(LIB.sf_weight_pack_tensors(ctypes.byref(t), 1, 0, ctypes.byref(host)))
        must(LIB.sf_weight_gpu_bytes(host, ctypes.byref(size)))
        memory = torch.empty(size.value, dtype=torch.uint8, device=parts[0].device)
        must(LIB.sf_weight_upload(host, memory.device.index or 0, memory.data_ptr(), size, cur(), ctypes.byref(gpu)))
        LIB.sf_weight_free(host)
        self.like[N, K] = gpu
        return [memory]

    def weight(self, t, N, K):
        key = N, K, t.data_ptr()
        if key not in self.weights:
            self.weights[key] = P()
            must(LIB.sf_weight_borrow(self.like[N, K], t.device.index or 0, t.data_ptr(), t.numel(), ctypes.byref(self.weights[key])))
        return self.weights[key]

    def call(self, weight, device, M, N, K):
        """The plan of a shape with its workspace, prepared once."""
        if (M, N, K) not in self.calls:
            kind = F16 if self.xdtype == torch.float16 else BF16
            problem = Problem(m=M, x_type=kind, y_type=kind, device=CUDA, device_index=device.index or 0)
            plan = Plan()
            must(LIB.sf_plan_make(weight, ctypes.byref(problem), ctypes.byref(plan)))
            workspace = torch.empty(max(plan.workspace, 256), dtype=torch.uint8, device=device)
            must(LIB.sf_workspace_init(ctypes.byref(plan), workspace.data_ptr(), plan.workspace, cur()))
            self.calls[M, N, K] = plan, workspace
        return self.calls[M, N, K]

    def run(self, t, x, out, M, N, K):
        weight = self.weight(t[0], N, K)
        plan, workspace = self.call(weight, x.device, M, N, K)
        args = RunArgs(x=x.data_ptr(), ldx=x.stride(0), y=out.data_ptr(), ldy=out.stride(0), workspace=workspace.data_ptr(),
                       workspace_size=plan.workspace, stream=cur(), no_dependent=0 if self.dependent else 1)
        must(LIB.sf_run(CONTEXT, weight, ctypes.byref(plan), ctypes.byref(args)))


def peers():
    return [Swordfish("swordfish_int4", "u4b8", INT4), Swordfish("swordfish_int4_no_pdl", "u4b8", INT4, dependent=False),
            Swordfish("swordfish_int4_zeros", "u4zp", INT4), Swordfish("swordfish_int4_fp16", "u4b8_fp16", INT4, torch.float16),
            Swordfish("swordfish_int4_act_order", "u4b8_perm", INT4), Swordfish("swordfish_int8", "u8b128", INT8),
            Swordfish("swordfish_nvfp4", "nvfp4", FP4)]
