// RUN: xdsl-opt %s -p pebble-discover-structure | filecheck %s

// Columns 0 and 2 read inputs 0 and 3; column 1 reads others.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x3xf32> {
  // CHECK: panels <[2 by 1], 0.67 shared, dense<[0, 2]> : tensor<2xi64>> : tensor<4x3xf32, #pebble.sparsity<csc, nonzeros = 6>>
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6]> : tensor<4xi64> rows dense<[0, 3, 1, 2, 0, 3]> : tensor<6xi64> values dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32> : tensor<4x3xf32, #pebble.sparsity<csc, nonzeros = 6>>
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x3xf32, #pebble.sparsity<csc, nonzeros = 6>>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}
