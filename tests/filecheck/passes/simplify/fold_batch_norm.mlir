// RUN: xdsl-opt %s -p pebble-fold-batch-norm --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-fold-batch-norm{keep=true}' --split-input-file | filecheck %s --check-prefix KEEP

// The layer before takes a batch norm with the factor 3 and the shift 5 - 1 * 3.
// CHECK-LABEL: @before
func.func @before(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant {pebble.values = ["w"]} dense<2.0> : tensor<1x1xf32>
  %b = pebble.constant dense<1.0> : tensor<1xf32>
  %scale = pebble.constant dense<6.0> : tensor<1xf32>
  %bias = pebble.constant dense<5.0> : tensor<1xf32>
  %mean = pebble.constant dense<1.0> : tensor<1xf32>
  %variance = pebble.constant dense<3.0> : tensor<1xf32>
  %h = pebble.linear %x, %w bias %b {pebble.node = "fc", pebble.values = ["h"]} : (tensor<?x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  // CHECK-NEXT: %w = pebble.constant {pebble.values = ["w"]} dense<6.000000e+00> : tensor<1x1xf32>
  // CHECK-NEXT: %b = pebble.constant dense<5.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: %y = pebble.linear %x, %w bias %b {pebble.node = "fc", pebble.values = ["y"]}
  // CHECK-NEXT: func.return %y
  %y = pebble.batch_norm %h scale %scale bias %bias mean %mean variance %variance epsilon 1.0 {pebble.node = "bn", pebble.values = ["y"]} : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Behind an activation only the layer behind can take it: 3 * 2, and (5 - 1 * 3) * 2.
// CHECK-LABEL: @behind
func.func @behind(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %scale = pebble.constant dense<6.0> : tensor<1xf32>
  %bias = pebble.constant dense<5.0> : tensor<1xf32>
  %mean = pebble.constant dense<1.0> : tensor<1xf32>
  %variance = pebble.constant dense<3.0> : tensor<1xf32>
  %h = pebble.linear %x, %w activation <relu> : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: %h = pebble.linear %x, %w activation <relu>
  // CHECK-NEXT: [[W:%.*]] = pebble.constant dense<6.000000e+00> : tensor<1x1xf32>
  // CHECK-NEXT: [[B:%.*]] = pebble.constant dense<4.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: %y = pebble.linear %h, [[W]] bias [[B]]
  %n = pebble.batch_norm %h scale %scale bias %bias mean %mean variance %variance epsilon 1.0 : (tensor<?x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %y = pebble.linear %n, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Of rank 3 the batch norm works along the middle axis: a product and a sum, or with `keep` nothing new.
// CHECK-LABEL: @alone
// KEEP-LABEL: @alone
func.func @alone(%x: tensor<?x2x4xf32>) -> tensor<?x2x4xf32> {
  %p = pebble.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %variance = pebble.constant dense<[3.0, 0.0]> : tensor<2xf32>
  // CHECK-NEXT: [[S:%.*]] = pebble.constant dense<{{.}}[5.000000e-01], [2.000000e+00]]> : tensor<2x1xf32>
  // CHECK-NEXT: [[T:%.*]] = pebble.constant dense<{{.}}[5.000000e-01], [-2.000000e+00]]> : tensor<2x1xf32>
  // CHECK-NEXT: [[P:%.*]] = pebble.mul %x, [[S]] {pebble.node = "bn"}
  // CHECK-NEXT: pebble.add [[P]], [[T]] {pebble.node = "bn", pebble.values = ["y"]}
  // KEEP: pebble.batch_norm %x
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %variance epsilon 1.0 {pebble.node = "bn", pebble.values = ["y"]} : (tensor<?x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4xf32>
  func.return %y : tensor<?x2x4xf32>
}
