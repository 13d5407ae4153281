// RUN: xdsl-opt %s -p pebble-sparsify --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-sparsify{densify=true}' --split-input-file | filecheck %s --check-prefix DENSE

// A quarter of the connections is left: both layers share the sparse weight, what is no layer keeps the dense constant.
// CHECK-LABEL: @shared
// DENSE-LABEL: @shared
func.func @shared(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant {pebble.values = ["w"]} dense<[[0.0, 3.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: [[W:%.*]] = pebble.sparse_constant {{.*}}pointers dense<[0, 0, 1]> : tensor<3xi64> rows dense<0> : tensor<1xi64> values dense<3.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: pebble.linear %x, [[W]]
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.linear %h, [[W]]
  %y = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @other_reader
func.func @other_reader(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  // CHECK: %w = pebble.constant {pebble.values = ["w"]}
  %w = pebble.constant {pebble.values = ["w"]} dense<[[0.0, 3.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: [[W:%.*]] = pebble.sparse_constant pointers
  // CHECK-NEXT: pebble.linear %x, [[W]]
  %h = pebble.linear %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  // CHECK-NEXT: pebble.add %h, %w
  %y = pebble.add %h, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}

// -----

// Two thirds of the connections are more than the default of 0.62.
// CHECK-LABEL: @dense
// DENSE-LABEL: @dense
func.func @dense(%x: tensor<?x3xf32>) -> tensor<?x1xf32> {
  // CHECK: %w = pebble.constant dense<{{.}}[3.000000e+00], [0.000000e+00], [2.000000e+00]]> : tensor<3x1xf32>
  // DENSE: %w = pebble.constant dense<{{.}}[3.000000e+00], [0.000000e+00], [2.000000e+00]]> : tensor<3x1xf32>
  %w = pebble.sparse_constant pointers dense<[0, 2]> : tensor<2xi64> rows dense<[0, 2]> : tensor<2xi64> values dense<[3.0, 2.0]> : tensor<2xf32> : tensor<3x1xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.linear %x, %w : (tensor<?x3xf32>, tensor<3x1xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
