"""What every device uses: the protocol, the allocator, the registry, caches, host libraries."""
