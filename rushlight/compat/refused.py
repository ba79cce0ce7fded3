"""Names of PyTorch that can be imported and not used: the call says what is not supported.

A library that imports such a name at its head, and seldom uses it, works for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rushlight.core.errors import RushlightError

_PLANS = (
    "ranks share out a checkpoint by themselves (distributed.checkpoint.save and load); "
    "their plans cannot be made or changed"
)
_EXPORT = "whole graphs are not captured; state_dict and safetensors move weights"
_REMOTE = "calls and modules in other processes (RPC) are not supported"
_IN_SCRIPTS = "TorchScript is not supported; the classes of torch.optim do the same steps"
_FLAT = "parameters are sharded one by one here; there are no flat parameters and handles"

# By PyTorch's path: why its names are refused, and the names.
REFUSED: dict[str, tuple[str, str]] = {
    "_tensor_docs": ("docstrings stand where their functions do", "add_docstr_all"),
    "_ops": (
        "ops are reached as torch.ops.aten.name, and made by torch.library",
        "HigherOrderOperator OperatorBase TorchBindOpOverload dl_open_guard",
    ),
    "_vmap_internals": (
        "use torch.func.vmap",
        "_vmap",
    ),
    "accelerator.graphs": (
        "graphs of launches are not recorded by hand",
        "Graph",
    ),
    "autograd._functions": (
        "use torch.autograd.Function",
        "Resize Type",
    ),
    "autograd._functions.tensor": (
        "use torch.autograd.Function",
        "Resize Type",
    ),
    "cuda.gds": (
        "files are read through host memory",
        "GdsFile gds_deregister_buffer gds_register_buffer",
    ),
    "cuda.green_contexts": (
        "a part of a card cannot be set aside",
        "GreenContext",
    ),
    "distributed.autograd": (
        _REMOTE,
        "context backward get_gradients",
    ),
    "distributed.checkpoint._consolidate_hf_safetensors": (
        "HuggingFaceStorageWriter writes whole tensors, which need no consolidation",
        "consolidate_safetensors_files consolidate_safetensors_files_on_every_rank",
    ),
    "distributed.checkpoint._dedup_save_plans": (
        _PLANS,
        "dedup_save_plans",
    ),
    "distributed.checkpoint._fsspec_filesystem": (
        "readers and writers are folders here: FileSystemReader, FileSystemWriter",
        "FileSystem FsspecReader FsspecWriter",
    ),
    "distributed.checkpoint.metadata": (
        _PLANS,
        "BytesStorageMetadata ChunkStorageMetadata StorageMeta "
        "TensorProperties TensorStorageMetadata _MEM_FORMAT_ENCODING",
    ),
    "distributed.checkpoint.optimizer": (
        "use distributed.checkpoint.state_dict.set_optimizer_state_dict",
        "load_sharded_optimizer_state_dict",
    ),
    "distributed.checkpoint.planner": (
        _PLANS,
        "BytesIOWriteData LoadPlan LoadPlanner SavePlan SavePlanner TensorWriteData",
    ),
    "distributed.checkpoint.planner_helpers": (
        _PLANS,
        "_chunk_for_shard _compare_save_plans _contains_usable_plan "
        "_create_chunk_from_dtensor _create_chunk_from_tensor _create_chunk_list "
        "_create_default_metadata_only_plan _create_read_item_for_byteio "
        "_create_read_item_for_tensor _create_read_items _create_write_item_for_bytesio "
        "_create_write_item_for_shard _create_write_item_for_tensor _create_write_items "
        "_create_write_items_for_dtensor _init_state_dict _iterate_state_dict "
        "_merge_delta_local_plans _sharded_tensor_metadata "
        "create_read_items_for_chunk_list",
    ),
    "distributed.checkpoint.quantized_hf_storage": (
        "quantized checkpoints are not read",
        "QuantizedHuggingFaceStorageReader",
    ),
    "distributed.checkpoint.resharding": (
        _PLANS,
        "_check_shard_metadata_pair_overlap _shards_get_overlap_region_wrt_saved_tensor",
    ),
    "distributed.checkpoint.staging": (
        "use distributed.checkpoint.async_save, which copies what it saves at the call",
        "AsyncStager BlockingAsyncStager DefaultStager StagingOptions _ReplicationStager",
    ),
    "distributed.checkpoint.storage": (
        "readers and writers are folders here: FileSystemReader, FileSystemWriter",
        "StorageReader StorageWriter WriteResult",
    ),
    "distributed.checkpoint.utils": (
        _PLANS,
        "_DistWrapper _ReaderView _all_gather_keys _assert_same_keys _create_file_view "
        "_normalize_device_info find_state_dict_object find_tensor_shard",
    ),
    "distributed.fsdp._flat_param": (
        _FLAT,
        "FlatParamHandle FlatParamShardMetadata FlatParameter HandleShardingStrategy "
        "ParamInfo SharedParamInfo",
    ),
    "distributed.fsdp._fsdp_extensions": (
        _FLAT,
        "FSDPExtensions _ext_all_gather_dtensor _ext_chunk_dtensor _ext_chunk_tensor "
        "_ext_post_unflatten_transform _ext_pre_flatten_transform "
        "_ext_pre_load_state_dict_transform _set_fsdp_extensions",
    ),
    "distributed.fsdp._fully_shard._fsdp_api": (
        "the collectives of fully_shard cannot be exchanged",
        "AllGather Comm ReduceScatter",
    ),
    "distributed.fsdp._fully_shard._fsdp_collectives": (
        "the collectives of fully_shard cannot be exchanged",
        "AllGatherResult DefaultAllGather DefaultReduceScatter "
        "ProcessGroupAllocAllGather ProcessGroupAllocReduceScatter foreach_all_gather "
        "foreach_all_gather_copy_out foreach_reduce",
    ),
    "distributed.fsdp._fully_shard._fsdp_common": (
        _FLAT,
        "DDPMeshInfo DataParallelMeshInfo FSDPMeshInfo HSDPMeshInfo TrainingState",
    ),
    "distributed.fsdp._fully_shard._fsdp_param": (
        _FLAT,
        "FSDPParam ParamModuleInfo ShardedState ExtensionsData",
    ),
    "distributed.fsdp._fully_shard._fsdp_param_group": (
        _FLAT,
        "FSDPParamGroup FSDPCommContext AllGatherState ReduceScatterState "
        "RegisterPostBackwardFunction",
    ),
    "distributed.fsdp._fully_shard._fsdp_state": (
        _FLAT,
        "FSDPState FSDPStateContext _get_module_fsdp_state RegisterPreBackwardFunction",
    ),
    "distributed.fsdp._init_utils": (
        _FLAT,
        "_get_default_comm_hook _init_process_group_state "
        "_init_param_handle_from_module ProcessGroupType",
    ),
    "distributed.fsdp._optim_utils": (
        _FLAT,
        "_optim_state_dict _rekey_sharded_optim_state_dict _flatten_optim_state_dict "
        "_get_param_to_fqns",
    ),
    "distributed.fsdp._runtime_utils": (
        _FLAT,
        "_lazy_init _root_pre_forward _pre_forward _post_forward _unshard _reshard "
        "_prefetch_handle _wait_for_computation_stream",
    ),
    "distributed.fsdp._shard_utils": (
        _FLAT,
        "_all_gather_dtensor _create_chunk_dtensor _create_chunk_sharded_tensor "
        "_get_remote_device_str",
    ),
    "distributed.fsdp._state_dict_utils": (
        _FLAT,
        "_enter_unshard_params_ctx _exit_unshard_params_ctx _convert_to_wrapped_module_name",
    ),
    "distributed.fsdp._traversal_utils": (
        _FLAT,
        "_get_fsdp_handles _get_fsdp_states _get_fsdp_states_with_modules",
    ),
    "distributed.fsdp._unshard_param_utils": (
        _FLAT,
        "_unshard_params _unshard_fsdp_state_params _unshard_params_for_summon "
        "_register_flat_param _deregister_orig_params",
    ),
    "distributed.fsdp._wrap_utils": (
        _FLAT,
        "_auto_wrap _get_managed_param_to_fqn",
    ),
    "distributed.nn.api": (
        _REMOTE,
        "RemoteModule",
    ),
    "distributed.nn.api.remote_module": (
        _REMOTE,
        "RemoteModule _RemoteModule",
    ),
    "distributed.optim.functional_adadelta": (
        _IN_SCRIPTS,
        "_FunctionalAdadelta",
    ),
    "distributed.optim.functional_adagrad": (
        _IN_SCRIPTS,
        "_FunctionalAdagrad",
    ),
    "distributed.optim.functional_adam": (
        _IN_SCRIPTS,
        "_FunctionalAdam",
    ),
    "distributed.optim.functional_adamax": (
        _IN_SCRIPTS,
        "_FunctionalAdamax",
    ),
    "distributed.optim.functional_adamw": (
        _IN_SCRIPTS,
        "_FunctionalAdamW",
    ),
    "distributed.optim.functional_rmsprop": (
        _IN_SCRIPTS,
        "_FunctionalRMSprop",
    ),
    "distributed.optim.functional_rprop": (
        _IN_SCRIPTS,
        "_FunctionalRprop",
    ),
    "distributed.optim.functional_sgd": (
        _IN_SCRIPTS,
        "_FunctionalSGD",
    ),
    "distributed.optim.named_optimizer": (
        "get_optimizer_state_dict of distributed.checkpoint names states by parameter",
        "_NamedOptimizer",
    ),
    "distributed.optim.optimizer": (
        _REMOTE,
        "DistributedOptimizer",
    ),
    "distributed.optim.utils": (
        _IN_SCRIPTS,
        "as_functional_optim register_functional_optim",
    ),
    "distributed.pipelining._IR": (
        "stages are cut at module paths (pipeline with a split_spec) or are given as modules",
        "pipe_split annotate_split_points PipeSequential PipeSplitWrapper LossWrapper "
        "TrivialLossWrapper",
    ),
    "distributed.pipelining._backward": (
        "stages are cut at module paths (pipeline with a split_spec) or are given as modules",
        "stage_backward stage_backward_input stage_backward_weight",
    ),
    "distributed.pipelining._utils": (
        "stages are cut at module paths (pipeline with a split_spec) or are given as modules",
        "PipeInfo PipeliningMetadataError extract_tensor_meta extract_tensor_metas "
        "flatten_args flatten_args_detach validate_tensors_metadata",
    ),
    "distributed.pipelining.stage": (
        "stages are cut at module paths (pipeline with a split_spec) or are given as modules",
        "_PipelineStageBase _PipelineStage build_stage",
    ),
    "distributed.tensor._api": (
        "ops run on parts by rules of their families; see DTensor.placements and redistribute",
        "_FromTorchTensor _ToTorchTensor",
    ),
    "distributed.tensor._collective_utils": (
        "ops run on parts by rules of their families; see DTensor.placements and redistribute",
        "mesh_broadcast mesh_scatter shard_dim_alltoall redistribute_cost pad_tensor unpad_tensor",
    ),
    "distributed.tensor._dtensor_spec": (
        "ops run on parts by rules of their families; see DTensor.placements and redistribute",
        "DTensorSpec ShardOrderEntry TensorMeta",
    ),
    "distributed.tensor._op_schema": (
        "ops run on parts by rules of their families; see DTensor.placements and redistribute",
        "OpInfo OpSchema OpSpec OpStrategy OutputSharding RuntimeSchemaInfo TupleStrategy",
    ),
    "distributed.tensor._random": (
        "torch.manual_seed gives all ranks the same random numbers of whole tensors",
        "OffsetBasedRNGTracker manual_seed is_rng_supported_mesh",
    ),
    "distributed.tensor._redistribute": (
        "ops run on parts by rules of their families; see DTensor.placements and redistribute",
        "Redistribute redistribute_local_tensor",
    ),
    "distributed.tensor.experimental._attention": (
        "attention over parts of a sequence (context parallelism) is not supported",
        "context_parallel context_parallel_unshard create_cp_block_mask "
        "set_rotate_method _context_parallel_shard _ContextParallel "
        "_enable_context_parallel_dispatcher _disable_context_parallel_dispatcher "
        "_cp_options",
    ),
    "distributed.tensor.experimental._context_parallel": (
        "attention over parts of a sequence (context parallelism) is not supported",
        "context_parallel context_parallel_unshard create_cp_block_mask "
        "set_rotate_method _context_parallel_shard _ContextParallel "
        "_enable_context_parallel_dispatcher _disable_context_parallel_dispatcher "
        "_cp_options",
    ),
    "distributed.tensor.experimental._context_parallel._attention": (
        "attention over parts of a sequence (context parallelism) is not supported",
        "context_parallel context_parallel_unshard create_cp_block_mask "
        "set_rotate_method _context_parallel_shard _ContextParallel "
        "_enable_context_parallel_dispatcher _disable_context_parallel_dispatcher "
        "_cp_options",
    ),
    "distributed.tensor.experimental._context_parallel._load_balancer": (
        "attention over parts of a sequence (context parallelism) is not supported",
        "_HeadTailLoadBalancer _LoadBalancer _PTRRLoadBalancer "
        "_PerDocumentHeadTailLoadBalancer _create_default_load_balancer",
    ),
    "distributed.tensor.experimental._register_sharding": (
        "rules follow from the families of ops; an op of several others has one by itself",
        "register_sharding",
    ),
    "distributed.tensor.parallel.ddp": (
        "wrap a model of DTensors in fully_shard over another dimension of the mesh",
        "_pre_dp_module_transform",
    ),
    "distributed.tensor.parallel.fsdp": (
        "wrap a model of DTensors in fully_shard over another dimension of the mesh",
        "DTensorExtensions",
    ),
    "distributed.tensor.parallel.input_reshard": (
        "what backward needs is not shared out over ranks; use memory.budget or checkpoint",
        "input_reshard",
    ),
    "export._trace": (
        _EXPORT,
        "_export _export_for_training",
    ),
    "export._unlift": (
        _EXPORT,
        "_unlift_exported_program_lifted_states",
    ),
    "export.custom_obj": (
        _EXPORT,
        "ScriptObjectMeta",
    ),
    "export.decomp_utils": (
        _EXPORT,
        "CustomDecompTable",
    ),
    "export.dynamic_shapes": (
        _EXPORT,
        "AdditionalInputs Constraint ShapesCollection dims "
        "refine_dynamic_shapes_from_suggested_fixes",
    ),
    "export.experimental": (
        _EXPORT,
        "_export_forward_backward",
    ),
    "export.exported_program": (
        _EXPORT,
        "ModuleCallEntry ModuleCallSignature default_decompositions",
    ),
    "export.graph_signature": (
        _EXPORT,
        "ConstantArgument CustomObjArgument ExportBackwardSignature "
        "ExportGraphSignature InputKind InputSpec OutputKind OutputSpec SymBoolArgument "
        "SymFloatArgument SymIntArgument TensorArgument TokenArgument",
    ),
    "export.passes": (
        _EXPORT,
        "move_to_device_pass",
    ),
    "export.pt2_archive": (
        _EXPORT,
        "PT2ArchiveReader PT2ArchiveWriter is_pt2_package package_pt2 load_pt2",
    ),
    "export.unflatten": (
        _EXPORT,
        "FlatArgsAdapter InterpreterModule UnflattenedModule unflatten",
    ),
    "mps.event": (
        "GPUs of Apple are reached through WebGPU",
        "Event",
    ),
    "mps.profiler": (
        "GPUs of Apple are reached through WebGPU; use torch.profiler",
        "is_capturing_metal is_metal_capture_enabled metal_capture profile start stop",
    ),
    "nested": (
        "ragged (nested) tensors are not supported; pad, or use nn.utils.rnn.pack_padded_sequence",
        "as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged "
        "to_padded_tensor",
    ),
    "nested._internal": (
        "ragged (nested) tensors are not supported; pad, or use nn.utils.rnn.pack_padded_sequence",
        "",
    ),
    "nested._internal.nested_tensor": (
        "ragged (nested) tensors are not supported; pad, or use nn.utils.rnn.pack_padded_sequence",
        "NestedTensor nested_view_from_values_offsets jagged_from_list "
        "buffer_from_jagged get_tensor_symint",
    ),
    "nn.attention._registry": (
        "device 'cuda' chooses its attention kernel by itself",
        "FlashAttentionHandle",
    ),
    "nn.attention.experimental": (
        "pages of keys and values are not supported",
        "",
    ),
    "nn.attention.experimental._paged_attention": (
        "pages of keys and values are not supported",
        "PagedAttention",
    ),
    "nn.cpp": (
        "modules of C++ cannot be wrapped",
        "ModuleWrapper OrderedDictWrapper",
    ),
    "optim._functional": (
        "an update is one kernel of its optimiser; call the step of a class of torch.optim",
        "adadelta adagrad adam adamax adamw asgd nadam radam rmsprop rprop sgd sparse_adam",
    ),
    "sparse.semi_structured": (
        "2:4 sparsity is not supported",
        "SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT "
        "SparseSemiStructuredTensorCUTLASS to_sparse_semi_structured",
    ),
    "testing._comparison": (
        "comparisons of classes of one's own are not supported; use assert_close of their tensors",
        "BooleanPair ErrorMeta NonePair NumberPair ObjectPair Pair TensorLikePair "
        "UnsupportedInputs default_tolerances not_close_error_metas originate_pairs",
    ),
    "utils.backend_registration": (
        'a device is a folder of rushlight/devices; "cuda" stands for the chosen one',
        "generate_methods_for_privateuse1_backend rename_privateuse1_backend",
    ),
    "utils.benchmark.utils.compile": (
        "torch.compile stays eager; time the function itself",
        "bench_all benchmark_compile",
    ),
    "utils.benchmark.utils.timer": (
        "C++ is not compiled",
        "CPPTimer",
    ),
    "utils.benchmark.utils.valgrind_wrapper": (
        "instructions are not counted (valgrind); use Timer.blocked_autorange",
        "CallgrindStats CopyIfCallgrind FunctionCount FunctionCounts GlobalsBridge "
        "wrapper_singleton",
    ),
    "utils.benchmark.utils.valgrind_wrapper.timer_interface": (
        "instructions are not counted (valgrind); use Timer.blocked_autorange",
        "CallgrindStats CopyIfCallgrind FunctionCount FunctionCounts GlobalsBridge "
        "wrapper_singleton",
    ),
    "utils.cpp_backtrace": (
        "there are no frames of C++ here",
        "get_cpp_backtrace",
    ),
    "utils.data.datapipes.dataframe": (
        "data frames are not read",
        "CaptureDataFrame DFIterDataPipe DataFramesAsTuplesPipe",
    ),
    "utils.data.datapipes.iter.routeddecoder": (
        "files are not decoded; use map with a function of your own",
        "RoutedDecoderIterDataPipe Decoder",
    ),
    "utils.data.datapipes.utils.decoder": (
        "files are not decoded; use map with a function of your own",
        "Decoder ImageHandler MatHandler audiohandler basichandlers "
        "extension_extract_fn handle_extension imagehandler mathandler videohandler",
    ),
    "utils.mkldnn": (
        "oneDNN is not used; layers run as they are",
        "to_mkldnn MkldnnBatchNorm MkldnnConv1d MkldnnConv2d MkldnnConv3d MkldnnLinear MkldnnPrelu",
    ),
    "utils.throughput_benchmark": (
        "use torch.utils.benchmark.Timer",
        "ExecutionStats ThroughputBenchmark",
    ),
}


def refusal(path: str, name: str, reason: str) -> Callable[..., Any]:
    """A class where PyTorch's is one, else a function, whose call raises RushlightError."""

    def refuse(*args: Any, **named: Any) -> NoReturn:
        raise RushlightError(f"{path}.{name}: {reason}")

    told = f"Refused: {reason}."
    if name.lstrip("_")[:1].isupper():
        members = {"__new__": refuse, "__module__": f"torch.{path}", "__doc__": told}
        made: Callable[..., Any] = type(name, (), members)
    else:
        made = refuse
        made.__name__ = made.__qualname__ = name
        made.__module__, made.__doc__ = f"torch.{path}", told
    return made
