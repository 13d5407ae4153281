// RUN: xdsl-opt %s -p pebble-schedule-network | filecheck %s

// What fits the cache runs layer by layer.
// CHECK-LABEL: @narrow
func.func @narrow(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  // CHECK-NOT: depth_first
  %y = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
