// RUN: xdsl-opt %s -p 'pebble-schedule-network{l1_bytes=512 l2_bytes=7168}' | filecheck %s

// Two layers of 16 neurons, in which neuron n reads neurons n and n + 1. In tiles of 64 samples, the inputs and outputs of
// a layer take 4 * 64 * 32 = 8192 bytes, which leave the cache of 7168: both layers run depth first, and a few values
// are alive at a time.
// CHECK-LABEL: @band
func.func @band(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32]> : tensor<17xi64> rows dense<[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 0, 15]> : tensor<32xi64> values dense<1.0> : tensor<32xf32> : tensor<16x16xf32, #pebble.sparsity<nonzeros = 32>>
  // CHECK: schedule <widths
  // CHECK-SAME: depth_first <from {{[0-9]+}}, [<layers 0 to 1, {{.*}} slots, blocks of {{.*}} beyond the second-level cache
  %y = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x16xf32>) -> tensor<?x16xf32> {
  ^bb0(%t: tensor<?x16xf32>):
    %h = pebble.linear %t, %w : (tensor<?x16xf32>, tensor<16x16xf32, #pebble.sparsity<nonzeros = 32>>) -> tensor<?x16xf32>
    %z = pebble.linear %h, %w : (tensor<?x16xf32>, tensor<16x16xf32, #pebble.sparsity<nonzeros = 32>>) -> tensor<?x16xf32>
    pebble.yield %z : tensor<?x16xf32>
  }
  func.return %y : tensor<?x16xf32>
}
