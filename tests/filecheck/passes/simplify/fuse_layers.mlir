// RUN: xdsl-opt %s -p pebble-fuse-layers --split-input-file | filecheck %s

// A chain behind a layer: (h + 1) * 2 - 3, then relu; the layer keeps its name, the value gets the last one.
// CHECK-LABEL: @chain
func.func @chain(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %one = pebble.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %two = pebble.constant dense<2.0> : tensor<f32>
  %three = pebble.constant dense<3.0> : tensor<1xf32>
  %h = pebble.linear %x, %w {pebble.node = "fc", pebble.values = ["h"]} : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %a = pebble.add %one, %h : (tensor<1x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.mul %a, %two : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %c = pebble.sub %b, %three : (tensor<?x2xf32>, tensor<1xf32>) -> tensor<?x2xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<{{.}}[2.000000e+00, 0.000000e+00], [0.000000e+00, 6.000000e+00]]>
  // CHECK: [[B:%.*]] = pebble.constant dense<[-1.000000e+00, -3.000000e+00]>
  // CHECK-NEXT: %y = pebble.linear %x, [[W]] bias [[B]] activation <relu> {pebble.node = "fc", pebble.values = ["y"]}
  // CHECK-NEXT: func.return %y
  %y = pebble.activate <relu> %c {pebble.node = "r", pebble.values = ["y"]} : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// In front of a layer: (x - 1) / 2, with a sparse weight, which stays sparse.
// CHECK-LABEL: @front
func.func @front(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[1]> : tensor<1xi64> values dense<[4.0]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  %one = pebble.constant dense<[5.0, 1.0]> : tensor<2xf32>
  %two = pebble.constant dense<2.0> : tensor<f32>
  %a = pebble.sub %x, %one : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %b = pebble.div %a, %two : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  // CHECK: [[W:%.*]] = pebble.sparse_constant {{.*}} values dense<2.000000e+00>
  // CHECK: [[B:%.*]] = pebble.constant dense<-2.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: %y = pebble.linear %x, [[W]] bias [[B]] :
  %y = pebble.linear %b, %w : (tensor<?x2xf32>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
