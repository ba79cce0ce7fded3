"""Where kernels run.

Owns: the Device protocol, the allocator that counts every byte, `cpu`, `cuda`, `webgpu`,
`reference` and `null`.
Takes: kernels. Gives: callables that run them on addresses of that device.
Never: knows the tape, ops or tensors. A device is found by its file's name and imported when first
asked for.
"""
