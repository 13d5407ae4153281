// RUN: xdsl-opt %s -p pebble-order-targets{l2_bytes=32} | filecheck %s

// What fits into the cache is read in the order of its numbers, and so is a graph between different nodes.
// CHECK-LABEL: @small
// CHECK-NOT: walk
func.func @small(%x: tensor<3x1xf32>, %z: tensor<6x2xf32>) -> (tensor<3x1xf32>, tensor<1x2xf32>) {
  %g = pebble.sparse_constant pointers dense<[0, 1, 2, 3]> : tensor<4xi64> rows dense<[1, 2, 0]> : tensor<3xi64> values dense<1.0> : tensor<3xf32> : tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>
  %h = pebble.sparse_constant pointers dense<[0, 2]> : tensor<2xi64> rows dense<[1, 5]> : tensor<2xi64> values dense<1.0> : tensor<2xf32> : tensor<6x1xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.aggregate %x, %g : (tensor<3x1xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x1xf32>
  %w = pebble.aggregate %z, %h : (tensor<6x2xf32>, tensor<6x1xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<1x2xf32>
  func.return %y, %w : tensor<3x1xf32>, tensor<1x2xf32>
}
