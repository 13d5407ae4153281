// RUN: xdsl-opt %s -p pebble-discover-structure --split-input-file | filecheck %s

// Outputs that read different inputs, in no pattern, have neither panels nor facts.
// CHECK-LABEL: @scattered
func.func @scattered(%x: tensor<?x6xf32>) -> tensor<?x3xf32> {
  // CHECK: values dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00, 5.000000e+00, 6.000000e+00, 7.000000e+00]> : tensor<7xf32> : tensor<6x3xf32, #pebble.sparsity<nonzeros = 7>>
  %w = pebble.sparse_constant pointers dense<[0, 2, 5, 7]> : tensor<4xi64> rows dense<[0, 4, 1, 2, 5, 0, 3]> : tensor<7xi64> values dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : tensor<7xf32> : tensor<6x3xf32, #pebble.sparsity<nonzeros = 7>>
  %y = pebble.linear %x, %w : (tensor<?x6xf32>, tensor<6x3xf32, #pebble.sparsity<nonzeros = 7>>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}

// -----

// A dense weight is not looked at, whatever its zeros.
// CHECK-LABEL: @dense
func.func @dense(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: %w = pebble.constant dense<{{.}}[1.000000e+00, 1.000000e+00], [0.000000e+00, 0.000000e+00]]> : tensor<2x2xf32>
  %w = pebble.constant dense<[[1.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: %y = pebble.linear %x, %w :
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
