/* The C ABI of Swordfish: open a quantized checkpoint, pack a layer, put it on a GPU, plan a product, explain the choice, run it.
 *
 * Rules. Every call that can fail returns sf_status, and sf_last_error() then holds a sentence for the calling thread. Handles are
 * opaque; free each with its own function (NULL is allowed), when no call uses it any more. A handle does not need the one that it
 * was made from: a weight may outlive its checkpoint. No C++ exception crosses this boundary. Structs start with struct_size, which
 * the caller sets to sizeof the struct before every call, outputs included: so a program built against an older header keeps
 * working with a newer library. Other fields that a caller does not set must be 0. Out-pointers are set only on success. Calls on
 * different handles are independent; several threads may read one checkpoint, weight, packed file or model at once, and may call
 * sf_run on one context (the calls take turns with its thread pool). Strings that a handle returns live as long as the handle.
 * Matrices are row-major; strides are in elements.
 */
#ifndef SWORDFISH_SWORDFISH_H_
#define SWORDFISH_SWORDFISH_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SF_API __attribute__((visibility("default")))
#else
#define SF_API
#endif

/* In C++, too, these enums may hold any int: what a caller passes is checked. */
#ifdef __cplusplus
#define SF_ENUM : int
extern "C" {
#else
#define SF_ENUM
#endif

typedef enum sf_status SF_ENUM {
  SF_OK = 0,
  SF_INVALID_ARGUMENT = 1, /* the caller's mistake */
  SF_MALFORMED = 2,        /* a file breaks its own format */
  SF_UNSUPPORTED = 3,      /* a well-formed input that Swordfish does not read */
  SF_IO = 4,               /* a file operation failed */
  SF_UNAVAILABLE = 5,      /* this machine or build cannot do it: no such device, no kernel that can run */
  SF_OUT_OF_MEMORY = 6,
  SF_CANCELLED = 7,
  SF_INTERNAL = 8 /* a defect of Swordfish */
} sf_status;

typedef enum sf_dtype SF_ENUM {
  SF_BF16 = 0,
  SF_F16 = 1,
  SF_F32 = 2,
  SF_F8_E4M3 = 3, /* scales of NVFP4 */
  SF_F8_E8M0 = 4, /* scales of MXFP4 */
  SF_U8 = 5,      /* zero points */
  SF_I16 = 6      /* zero points, where one exceeds 255 */
} sf_dtype;
typedef enum sf_code_type SF_ENUM { SF_INT4 = 0, SF_INT8 = 1, SF_FP4 = 2 } sf_code_type;
typedef enum sf_device_kind SF_ENUM { SF_CPU = 0, SF_CUDA = 1 } sf_device_kind;
/* How to read the zero points of an asymmetric GPTQ v1 file in which some stored lane is all ones (docs/formats.md). */
typedef enum sf_gptq_v1_zeros SF_ENUM {
  SF_V1_REFUSE = 0,   /* the default: readers of such files disagree */
  SF_V1_LANE = 1,     /* (stored + 1) & mask, lane by lane */
  SF_V1_UNMASKED = 2, /* stored + 1, lane by lane: 15 becomes 16 */
  SF_V1_WORD = 3      /* lanes of word + 0x11111111 (8-bit: 0x01010101) */
} sf_gptq_v1_zeros;

typedef struct sf_checkpoint sf_checkpoint;   /* an open checkpoint */
typedef struct sf_packed_file sf_packed_file; /* an open file written by sf_pack_file or `swordfish pack` */
typedef struct sf_weight sf_weight;           /* one packed weight, in host memory or on a GPU */
typedef struct sf_context sf_context;         /* a thread pool */
typedef struct sf_model sf_model;             /* a checkpoint's packed weights, loaded */

/* "0.1.0". */
SF_API const char* sf_version(void);
/* "malformed", "io", ... */
SF_API const char* sf_status_name(sf_status status);
/* What this thread's last failed call said; "" if none has failed yet. Valid until the thread's next call that fails. */
SF_API const char* sf_last_error(void);

/* ---- checkpoints ---- */

typedef struct sf_open_options {
  size_t struct_size;
  sf_gptq_v1_zeros gptq_v1_zeros; /* how to read ambiguous GPTQ v1 zero points; refused by default */
} sf_open_options;

/* path: a checkpoint folder, a .safetensors file with its configuration beside it, or a .gguf file (the first of a split model).
 * Reads headers and configuration only. options may be NULL. */
SF_API sf_status sf_checkpoint_open(const char* path, const sf_open_options* options, sf_checkpoint** out);
SF_API void sf_checkpoint_free(sf_checkpoint* checkpoint);
SF_API size_t sf_checkpoint_layer_count(const sf_checkpoint* checkpoint);

typedef struct sf_layer_info {
  size_t struct_size;
  const char* name;   /* module path */
  const char* scheme; /* "gptq", "gguf Q4_K", ... */
  sf_code_type code;
  int64_t n, k;
  int64_t experts;    /* 0: a plain matrix; else stacked [experts, n, k] */
  int64_t group_size; /* equal to k when channelwise */
  int has_bias;       /* a bias tensor exists; it may be an all-zero placeholder (sf_checkpoint_bias) */
  uint64_t bytes;     /* stored bytes */
} sf_layer_info;

SF_API sf_status sf_checkpoint_layer(const sf_checkpoint* checkpoint, size_t layer, sf_layer_info* out);
/* The index of the layer with this module path. */
SF_API sf_status sf_checkpoint_find(const sf_checkpoint* checkpoint, const char* name, size_t* layer);
/* out[n, k], row stride ld >= k: the weights in the original column order, the exact value of the format's formula rounded once to
 * fp32. expert: 0 for a plain layer. */
SF_API sf_status sf_checkpoint_dequantize(const sf_checkpoint* checkpoint, size_t layer, int64_t expert, float* out, int64_t ld);
/* Writes bias[n] as fp32. When the layer has none, *has_bias is 0 and bias is untouched; an all-zero placeholder counts as none. */
SF_API sf_status sf_checkpoint_bias(const sf_checkpoint* checkpoint, size_t layer, int64_t expert, float* bias, int* has_bias);

/* ---- packed weights ---- */

/* Packs one layer, or `count` layers as one fused weight (q | k | v, gate | up), each part with its own global scale. expert: 0 for
 * plain layers. threads 0: all cores. */
SF_API sf_status sf_weight_pack(const sf_checkpoint* checkpoint, const size_t* layers, size_t count, int64_t expert, int threads,
                                sf_weight** out);
SF_API void sf_weight_free(sf_weight* weight);

typedef struct sf_weight_info {
  size_t struct_size;
  const char* name;
  const char* layout; /* "mma64/1" */
  sf_code_type code;
  int64_t n, k;
  int64_t parts;
  uint64_t bytes;        /* of all its planes */
  sf_device_kind device; /* where the planes are */
  int device_index;
} sf_weight_info;

SF_API sf_status sf_weight_get_info(const sf_weight* weight, sf_weight_info* out);
/* A weight with a shape but no data, for planning and explaining; it cannot be run. group_size 0: channelwise. */
SF_API sf_status sf_weight_describe(sf_code_type code, int64_t n, int64_t k, int64_t group_size, sf_weight** out);
/* A quantized matrix in host memory, as codes and planes: w = G(scale * (code - zero) + offset). The columns are divided into
 * groups of group_size with one row of scales each; or column k uses row row_of_k[k]. Strides are in elements; 0 broadcasts. */
typedef struct sf_tensor {
  size_t struct_size;
  const char* name; /* may be NULL */
  sf_code_type code;
  int64_t n, k;
  const uint8_t* codes;    /* [n, k], one byte a code: int4 0..15, int8 0..255, fp4 e2m1 bits */
  int64_t codes_stride;    /* between rows, >= k */
  int64_t group_size;      /* k when channelwise */
  int64_t rows;            /* rows of scales: at least ceil(k / group_size), or more than every row_of_k */
  const int32_t* row_of_k; /* [k] (activation order) or NULL */
  const void* scales;      /* [n, rows] scale_type: SF_BF16, SF_F16, SF_F32, SF_F8_E4M3, SF_F8_E8M0 */
  sf_dtype scale_type;
  int64_t scale_stride_n, scale_stride_row;
  const void*
      zeros; /* [n, rows] zero_type (SF_U8 or SF_I16), or NULL: the constant 8 (int4), 128 (int8), 0 (fp4, or with offsets) */
  sf_dtype zero_type;
  int64_t zero_stride_n, zero_stride_row;
  const void* offsets; /* [n, rows] offset_type (SF_BF16, SF_F16, SF_F32), or NULL; not beside zeros */
  sf_dtype offset_type;
  int64_t offset_stride_n, offset_stride_row;
  float global;       /* G multiplies by it; 0 counts as 1 */
  int global_divides; /* G divides by it instead */
} sf_tensor;

/* Packs tensors as the parts of one weight. What they point to is not needed after the call. threads 0: all cores. */
SF_API sf_status sf_weight_pack_tensors(const sf_tensor* tensors, size_t count, int threads, sf_weight** out);
/* out[n, k], row stride ld >= k: the weights as fp32, read from the packed bytes; fused parts follow each other. Not for a weight
 * on a GPU. */
SF_API sf_status sf_weight_dequantize(const sf_weight* weight, float* out, int64_t ld);

typedef struct sf_pack_options {
  size_t struct_size;
  const char* layers;                                         /* PCRE2 pattern searched in layer names; NULL: all */
  int fuse;                                                   /* pack q|k|v and gate|up as one weight each */
  int force;                                                  /* replace an existing file */
  int threads;                                                /* 0: all cores */
  int (*progress)(uint64_t done, uint64_t total, void* user); /* returns 0 to cancel; may be NULL */
  void* user;
} sf_pack_options;

/* Streams a checkpoint into a packed file, which appears complete or not at all. options may be NULL. */
SF_API sf_status sf_pack_file(const sf_checkpoint* checkpoint, const char* out, const sf_pack_options* options);
SF_API sf_status sf_packed_file_open(const char* path, sf_packed_file** out);
SF_API void sf_packed_file_free(sf_packed_file* file);
SF_API size_t sf_packed_file_layer_count(const sf_packed_file* file);
SF_API const char* sf_packed_file_layer_name(const sf_packed_file* file, size_t layer); /* NULL: no such layer */
SF_API sf_status sf_packed_file_load(const sf_packed_file* file, size_t layer, int64_t expert, sf_weight** out);

/* ---- GPUs ----
 *
 * Calls make their device current for the calling thread and restore the previous one. Pointers and streams may be the caller's own
 * (cudaMalloc, cudaStream_t, a framework's tensor); the memory and stream functions here are for programs that do not link CUDA.
 * stream NULL: the default stream. */

typedef struct sf_gpu_info {
  size_t struct_size;
  const char* name;
  int compute_capability; /* 10 * major + minor */
  int sms;
  uint64_t memory, l2;  /* bytes */
  const char* unusable; /* NULL, or a sentence that says why this build cannot run kernels on it */
} sf_gpu_info;

typedef struct sf_gpus_info {
  size_t struct_size;
  int count;
  int driver, runtime;      /* CUDA versions of the driver and of this build: 1000 * major + 10 * minor; 0: none */
  const char* machine_code; /* architectures that this build has kernels for: "90a"; "" without CUDA */
  const char* none;         /* NULL, or a sentence that says why there are none */
} sf_gpus_info;

SF_API sf_status sf_gpus(sf_gpus_info* out);
SF_API sf_status sf_gpu(int index, sf_gpu_info* out);

SF_API sf_status sf_gpu_alloc(int index, size_t size, void** out); /* 256-byte aligned */
SF_API sf_status sf_gpu_free(int index, void* memory);
/* Copies between host and GPU memory, either way, in order with the stream. Returns when the copy is done. */
SF_API sf_status sf_gpu_copy(int index, void* to, const void* from, size_t size, void* stream);
/* In order with the stream; does not wait. */
SF_API sf_status sf_gpu_fill(int index, void* to, int byte, size_t size, void* stream);
SF_API sf_status sf_gpu_stream_create(int index, void** out);
SF_API sf_status sf_gpu_stream_free(int index, void* stream);
SF_API sf_status sf_gpu_synchronize(int index, void* stream);

/* Bytes that a weight takes on a GPU. */
SF_API sf_status sf_weight_gpu_bytes(const sf_weight* weight, size_t* bytes);
/* Copies a weight from host memory to a GPU: into the caller's memory (256-byte aligned, at least sf_weight_gpu_bytes, freed after
 * *out), or, with memory NULL, into memory that *out owns. Returns when the copy is done. The bytes hold no pointers: they may be
 * copied elsewhere and used through sf_weight_borrow. */
SF_API sf_status sf_weight_upload(const sf_weight* weight, int index, void* memory, size_t size, void* stream, sf_weight** out);
/* A weight whose bytes are in GPU memory already, as an upload of `like` (or of the weight that `like` was uploaded from) wrote
 * them. The memory stays the caller's and must outlive *out. */
SF_API sf_status sf_weight_borrow(const sf_weight* like, int index, void* memory, size_t size, sf_weight** out);

/* ---- whole models ---- */

typedef struct sf_load_options {
  size_t struct_size;
  const char* device;             /* where weights, biases and tensors go: "cpu" (or NULL), "cuda" or "cuda:N" */
  const char* layout;             /* "mma64/1" (or NULL), or "sm1xx-blockscaled/1" */
  const char* layers;             /* PCRE2 pattern searched in layer names; NULL: all, and the tensors that belong to no layer */
  int fuse;                       /* pack q|k|v and gate|up as one weight each */
  int rank, ranks;                /* tensor parallelism; ranks 0 counts as 1 */
  int whole_experts;              /* deal experts out whole instead of cutting each */
  const char* cache;              /* folder of packed caches, or NULL */
  uint64_t ring_bytes;            /* memory that reads land in; 0: 256 MiB */
  int threads;                    /* 0: all cores */
  sf_gptq_v1_zeros gptq_v1_zeros; /* as for sf_checkpoint_open */
  int (*progress)(uint64_t done, uint64_t total, void* user); /* about ten times a second; returns 0 to cancel; may be NULL */
  void* user;
} sf_load_options;

/* Reads and packs everything that the rank holds, at the speed of the disk. path: as for sf_checkpoint_open, or a packed file.
 * options may be NULL. */
SF_API sf_status sf_load(const char* path, const sf_load_options* options, sf_model** out);
SF_API void sf_model_free(sf_model* model);
/* The number of matrices: the experts of a stacked layer count one by one, in order. */
SF_API size_t sf_model_weight_count(const sf_model* model);
/* *weight belongs to the model: do not free it. *expert: its number, 0 for a plain layer. *bias: [n] fp32 on the model's device, or
 * NULL. expert and bias may be NULL. */
SF_API sf_status sf_model_weight(const sf_model* model, size_t index, const sf_weight** weight, int64_t* expert,
                                 const float** bias);

typedef struct sf_tensor_info {
  size_t struct_size;
  const char* name;
  const char* type; /* "BF16", "Q4_K", ... */
  const int64_t* shape;
  size_t rank;
  const void* data; /* as stored, on the model's device; belongs to the model */
  uint64_t bytes;
} sf_tensor_info;

/* Tensors that belong to no quantized layer. */
SF_API size_t sf_model_tensor_count(const sf_model* model);
SF_API sf_status sf_model_tensor(const sf_model* model, size_t index, sf_tensor_info* out);

/* ---- products: y[m,n] = x[m,k] * W^T + bias ---- */

typedef struct sf_problem {
  size_t struct_size;
  int64_t m;
  sf_dtype x_type; /* SF_BF16 or SF_F16 */
  sf_dtype y_type; /* SF_BF16, SF_F16 or SF_F32 */
  int has_bias;    /* sf_run_args.bias will be set */
  sf_device_kind device;
  int device_index;
  int threads;        /* of the context that will run it; 0 counts as 1 */
  const char* kernel; /* force a kernel by name; NULL: the first of the table that can run */
} sf_problem;

/* Chosen for each call from the device, the weight and the true m. A plain struct, valid in this process. */
typedef struct sf_plan {
  size_t struct_size;
  const char* kernel; /* static string */
  int kernel_index;
  int tile_m, tile_n, tasks, split_k;
  size_t workspace; /* bytes */
  int64_t m;
  sf_dtype x_type, y_type;
  int has_bias;
  sf_device_kind device;
  int device_index;
  int threads;
} sf_plan;

SF_API sf_status sf_plan_make(const sf_weight* weight, const sf_problem* problem, sf_plan* out);
/* Calls visit once for each kernel of the table, in its order; reason says why it was chosen or why not. */
SF_API sf_status sf_explain(const sf_weight* weight, const sf_problem* problem,
                            void (*visit)(void* user, const char* kernel, int chosen, const char* reason), void* user);

typedef struct sf_run_args {
  size_t struct_size;
  const void* x;
  int64_t ldx; /* elements, >= k */
  void* y;
  int64_t ldy;       /* elements, >= n */
  const float* bias; /* [n] or NULL */
  void* workspace;   /* plan.workspace bytes, 64-byte aligned (on a GPU: 256), prepared once by sf_workspace_init. It serves every
                        plan on the same device that it is large enough for; each call in flight needs one of its own */
  size_t workspace_size;
  void* stream;     /* cudaStream_t on a GPU */
  int no_dependent; /* no programmatic dependent launch (sm_90 and up): set it where the previous kernel in the stream writes the
                       weight */
} sf_run_args;

/* threads 0: as many as the cores that this process may use. */
SF_API sf_status sf_context_create(int threads, sf_context** out);
SF_API void sf_context_free(sf_context* context);
SF_API int sf_context_threads(const sf_context* context);
/* Prepares a workspace once, before its first call. */
SF_API sf_status sf_workspace_init(const sf_plan* plan, void* workspace, size_t size, void* stream);
/* Allocates nothing and, on a GPU, waits for nothing: x, y, bias, weight and workspace must stay until the stream has passed the
 * call. On the CPU it returns when y is written. m = 0 is a no-op. */
SF_API sf_status sf_run(sf_context* context, const sf_weight* weight, const sf_plan* plan, const sf_run_args* args);

#ifdef __cplusplus
}
#endif
#endif /* SWORDFISH_SWORDFISH_H_ */
